"""What idem's statements have in common: the end of a step with what follows from it, rest, the way back to work, and
the order. Each is a part of one statement: no process sees what is between two lines of it."""

from __future__ import annotations

from model.mutants import Mutant
from model.state import (
    BLOCKS_RETRY,
    DONE,
    FIRST,
    SECOND,
    UNDO,
    Flow,
    Intent,
    Row,
    State,
    World,
    stands,
)

END, PARTIAL = 0, -1


def after(flow: Flow, step: int, outcome: str) -> int:
    """The plan: the step that follows this end; `END`: none; `PARTIAL`: an operator must decide."""
    if step == UNDO:
        return END if outcome in DONE else PARTIAL
    if outcome in DONE:
        return SECOND if step == FIRST and flow.steps > 1 else END
    if step == FIRST:
        return END
    if outcome == "refused" and flow.on_refusal == "operator":
        return PARTIAL
    if outcome == "refused" and flow.on_refusal == "stop":
        return END
    return UNDO if flow.undo else END


def locked(world: World, state: State) -> bool:
    """Whether an accept that has not committed holds the ordering key."""
    return world.ordered and any(one.key == "accepting" for one in state.intents)


def waits(world: World, state: State) -> bool:
    """Whether a statement that ends an intent waits for that accept."""
    return world.patient and locked(world, state)


def earlier(world: World, state: State, number: int) -> list[Intent]:
    """The intents before this one in its order that are open."""
    if not world.ordered:
        return []
    by_rows = Mutant.ORDER_OF_ROWS in world.mutants
    return [
        one
        for one in state.intents[:number]
        if one.row is not None and one.key not in ("none", "accepting") and not one.skipped
        and not (by_rows and one.row.step > FIRST)
    ]  # fmt: skip


def blocked(world: World, state: State, number: int) -> bool:
    """Whether a row must wait for its turn."""
    return bool(earlier(world, state, number)) or 0 < state.order_held <= number


def wake(world: World, state: State, *, by_sweeper: bool = False) -> State:
    """The next row of the order is due, if it waits for nothing else. Part of every statement that ends an intent, and
    a statement of the sweeper."""
    if not world.ordered or Mutant.PROMOTED_BY_NOBODY in world.mutants:
        return state
    if by_sweeper and state.order_held and Mutant.SWEEPER_ENDS_HOLD in world.mutants:
        held, state = state.order_held, state._replace(order_held=0)
        return wake(world, state, by_sweeper=True)._replace(order_held=held)
    if not by_sweeper and locked(world, state):
        return state  # the accept that holds the ordering key may not have seen this end: the sweeper comes
    ready = ("waiting", "approval") if Mutant.UNAPPROVED_PROMOTED in world.mutants else ("waiting",)
    for number, intent in enumerate(state.intents):
        row = intent.row
        seen = row is not None and intent.key != "accepting"
        if seen and row.status in ready and not blocked(world, state, number):
            return state.change_row(number, status="pending")
    return state


def ended(
    world: World, state: State, number: int, outcome: str, *, partial: bool = True, operator: bool = False
) -> State | None:
    """The open step has its end: its row goes, its end and the recovery point are written, and the next step's row
    comes, or the intent is complete. None: the statement waits for the lock of the ordering key.

    `operator`: it is an operator's word. `partial` False: one has decided about the refusal already.
    """
    intent, flow = state.intents[number], world.flows[number]
    row = intent.row
    assert row is not None
    then = after(flow, row.step, outcome)
    if then == PARTIAL and partial:
        return rests(state, number, "partial", burned=True)
    if then == PARTIAL:
        then = UNDO if row.step == SECOND and flow.undo else END
    ends = tuple(outcome if place == row.step else end for place, end in enumerate(intent.ends, 1))
    intent = intent._replace(ends=ends, row=None, letters=intent.letters - {"too_late", "partial"})
    if Mutant.NO_RECOVERY_POINT not in world.mutants:
        intent = intent._replace(recovery_point=row.step)
    if then != END:
        if intent.key == "expired" and intent.state == "failed_retryable" and not operator:
            letters = intent.letters | {"partial"}
            if Mutant.GOES_ON_BEHIND_EXPIRY not in world.mutants:
                return state.put(number, intent._replace(row=Row(then, "held"), letters=letters))
        if flow.completes == row.step and outcome == "succeeded":
            intent = answered(intent, "succeeded")
        waits = "in_progress" if intent.key in ("unknown", "failed_retryable") else intent.key
        return state.put(number, intent._replace(state="in_progress", key=waits, row=Row(then, "unfrozen")))
    return completes(world, state.put(number, intent), number, said(world, ends))


def said(world: World, ends: tuple[str | None, ...]) -> str:
    """The word of an answer: the end of the first forward step that did not succeed, as long as it is true."""
    word = next((end for end in ends[:2] if end and end not in DONE), "succeeded")
    if word == "cancelled" and stands(ends) and Mutant.CANCELLED_AND_NOT_UNDONE not in world.mutants:
        return "partly done"
    return word


def answered(intent: Intent, word: str) -> Intent:
    """The key is complete with its stored answer, unless it has one or is expired."""
    if intent.key in ("completed", "expired"):
        return intent
    return intent._replace(key="completed", answer=(word, stands(intent.ends)))


def completes(world: World, state: State, number: int, word: str) -> State | None:
    """The intent is complete, and the next of its order begins."""
    if waits(world, state):
        return None
    intent = answered(state.intents[number]._replace(state="completed", row=None), word)
    # One that an operator has let pass holds nobody any more: its followers may be at work.
    holds = not intent.skipped or Mutant.SKIPPED_HEAD_HOLDS in world.mutants
    if world.ordered and world.hold and word == "refused" and holds:
        held = intent._replace(letters=intent.letters | {"head_refused"})
        return state.put(number, held)._replace(order_held=number + 1)
    return wake(world, state.put(number, intent))


def rests(state: State, number: int, letter: str | None, *, burned: bool = False, due: bool = False) -> State:
    """Proven not executed: the row is held until a retry or a redrive."""
    intent = state.intents[number]
    assert intent.row is not None
    row = intent.row._replace(status="held", token=0, quiet=False, due=due, burned=intent.row.burned or burned)
    letters = intent.letters | ({letter} if letter else set())
    if letter and row.step == UNDO:
        letters |= {"partial"}
    return state.put(number, moved(intent, "failed_retryable")._replace(row=row, letters=letters))


def rests_too_late(world: World, state: State, number: int) -> State:
    """The same when nothing of ours follows: with a dead letter, unless its client comes again for it."""
    intent = state.intents[number]
    assert intent.row is not None
    # Of a flow that is partly done somebody must know: its key never expires, and what was done stands.
    client = intent.recovery_point == 0 or Mutant.SILENT_REST in world.mutants
    return rests(state, number, None if client else "too_late")


def moved(intent: Intent, to: str) -> Intent:
    """Another state of the intent, and of its key unless that has its answer or is expired."""
    return intent._replace(state=to, key=intent.key if intent.key in ("completed", "expired") else to)


def unknown(state: State, number: int) -> State:
    """Bytes may have left."""
    intent = state.intents[number]
    assert intent.row is not None
    row = intent.row._replace(status="unknown", token=0, quiet=False)
    return state.put(number, moved(intent, "unknown")._replace(row=row))


def proven(world: World, state: State, number: int, step: int, generation: int, outcome: str) -> State | None:
    """A proof about (intent, step) from whoever has seen it. None: it changes nothing, or its statement waits."""
    intent = state.intents[number]
    row = intent.row
    if row is None:
        return None
    any_step = Mutant.PROOF_NAMES_NO_STEP in world.mutants and step == FIRST
    if row.step != step and not any_step:
        return None  # a step that has its end: compared, never applied
    if row.burned and row.generation == generation:
        return None  # the refusal that its dead letter is about
    old = generation != row.generation and outcome == "refused"
    if old and Mutant.OLD_REFUSAL_APPLIED not in world.mutants:
        return None  # the refusal that an operator has already decided about
    if row.token:
        return None if row.proof else state.change_row(number, proof=outcome)
    return ended(world, state, number, outcome)


def released(world: World, state: State, number: int, end: State) -> State | None:
    """A claim or a take has ended, and the proof that was stored meanwhile is folded in: it decides."""
    row = state.intents[number].row
    assert row is not None
    if row.proof is None:
        return end
    return ended(world, state.change_row(number, token=0, proof=None), number, row.proof)


def back(world: World, state: State, number: int, *, by_client: bool = False) -> State:
    """A held row goes back to work: to its approval if nobody has approved it, to its place in the order, or due."""
    intent = state.intents[number]
    row = intent.row
    assert row is not None
    asks = world.flows[number].approve and not intent.approved
    if asks and not (by_client and Mutant.RETRY_APPROVES in world.mutants):
        status = "approval"
    elif row.burned:
        status = "unfrozen"
    elif blocked(world, state, number) and not (by_client and Mutant.RETRY_JUMPS_THE_ORDER in world.mutants):
        status = "waiting"
    else:
        status = "pending"
    if row.burned:
        row = row._replace(generation=row.generation + 1, burned=False)
    intent = moved(intent, "in_progress")._replace(letters=intent.letters - {"too_late", "partial"})
    return state.put(number, intent._replace(row=row._replace(status=status, due=False, proof=None)))


def may_retry(world: World, intent: Intent) -> bool:
    """Whether the client's retry takes the key up again."""
    row = intent.row
    return (
        intent.key == "failed_retryable" and row is not None and row.status == "held" and row.proof is None
        and not row.due and row.attempt < world.sends and not intent.letters & BLOCKS_RETRY
    )  # fmt: skip
