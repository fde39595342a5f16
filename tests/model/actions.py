"""Who may do what in a state. Each action is one statement or transaction of idem, or one instant of the provider,
of the network or of the clock; `actions` yields all that can happen next, each with the state after it."""

from __future__ import annotations

from collections.abc import Iterator

from model.mutants import Mutant
from model.state import FIRST, QUEUED, SECOND, UNDO, Action, Intent, Process, Request, Row, State, World, key_of
from model.statements import (
    back,
    blocked,
    completes,
    ended,
    locked,
    may_retry,
    moved,
    proven,
    released,
    rests,
    rests_too_late,
    said,
    unknown,
    waits,
    wake,
)

Next = tuple[Action, State | None]
"""An action and the state after it. None: it changes nothing here, or it waits for a lock."""


def actions(world: World, state: State) -> Iterator[tuple[Action, State]]:
    """All that can happen next and changes anything."""
    for part in (client, worker, provider, webhook, sweeper, reconciler, clock, operator):
        for action, then in part(world, state):
            if then is not None and then != state:
                yield action, then


def accepted(state: State) -> Iterator[tuple[int, Row]]:
    """The open rows that others can see."""
    for number, intent in enumerate(state.intents):
        if intent.row is not None and intent.key not in ("none", "accepting"):
            yield number, intent.row


# The client: accept (in an order, its transaction may stay open), roll back, retry with the same key, cancel.


def client(world: World, state: State) -> Iterator[Next]:
    for number, intent in enumerate(state.intents):
        if intent.key == "none" and all(one.key != "none" for one in state.intents[:number]):
            open_accept = locked(world, state) and Mutant.ACCEPT_WITHOUT_LOCK not in world.mutants
            if not open_accept:
                yield Action("client", "accepts", number), _accepting(world, state, number)
        if intent.key == "accepting":
            yield Action("database", "commits the accept", number), state.change(number, key="in_progress")
            yield Action("database", "rolls the accept back", number), state.put(number, Intent())
        if may_retry(world, intent):
            assert intent.row is not None
            retried = Action("client", "retries", number, intent.row.step)
            yield retried, back(world, state, number, by_client=True)
        row = intent.row
        if world.cancels and row is not None and intent.key not in ("none", "accepting") and _cancellable(row):
            # What is done an operator alone may have undone, and only where there is something that undoes it.
            if "succeeded" not in intent.ends:
                yield Action("client", "cancels", number, row.step), ended(world, state, number, "cancelled")
            elif world.operator and world.flows[number].undo:
                cancelled = ended(world, state, number, "cancelled", operator=True)
                yield Action("operator", "cancels", number, row.step), cancelled


def _cancellable(row: Row) -> bool:
    return row.status in (*QUEUED, "held", "approval") and row.step != UNDO and row.proof is None


def _accepting(world: World, state: State, number: int) -> State:
    status = "waiting" if blocked(world, state, number) else "pending"
    if world.flows[number].approve:
        status = "approval"
    # Without an order nothing looks at an accept before it has committed.
    return state.change(number, key="accepting" if world.ordered else "in_progress", row=Row(FIRST, status))


# A worker: renders, claims, sends the first byte, reports. It may stop at any point.


def worker(world: World, state: State) -> Iterator[Next]:
    hands = list(state.workers)
    if None in hands:
        free = hands.index(None)
        for number, row in accepted(state):
            yield from _rendering(world, state, number, row)
            if _claimable(world, state, number, row):
                hand = Process("claimed", number, row.step, row.attempt + 1, row.generation)
                claimed = state.change_row(
                    number, status="claimed", attempt=row.attempt + 1, token=row.attempt + 1, quiet=False
                )
                yield Action("worker", "claims", number, row.step), _hands(claimed, free, hand)
    for place, hand in enumerate(hands):
        if hand is not None and (place == 0 or hands[place - 1] != hand):
            idle = _hands(state, place, None)
            yield Action("worker", "dies", hand.intent, hand.step, hand.stage), idle
            if hand.stage == "claimed":
                yield (
                    Action("worker", "sends", hand.intent, hand.step),
                    _hands(_sent(world, state, hand), place, hand._replace(stage="sent")),
                )
                yield Action("worker", "reports not executed", hand.intent, hand.step), _not_executed(world, idle, hand)
            else:
                yield Action("worker", "reports ambiguous", hand.intent, hand.step), _ambiguous(world, idle, hand)
                if word := state.word(key_of(world, hand.intent, hand.step, hand.generation)):
                    reports = Action("worker", f"reports {word}", hand.intent, hand.step)
                    yield reports, _reported(world, idle, hand, word)


def _rendering(world: World, state: State, number: int, row: Row) -> Iterator[Next]:
    if row.status != "unfrozen":
        return
    status = "waiting" if blocked(world, state, number) else "pending"
    yield Action("worker", "renders", number, row.step), state.change_row(number, status=status)
    if row.step == SECOND and world.flows[number].optional and row.generation == 1:
        yield Action("worker", "skips", number, row.step), ended(world, state, number, "skipped")


def _claimable(world: World, state: State, number: int, row: Row) -> bool:
    due = row.status == "pending"
    if Mutant.CLAIMED_UNDER_UNKNOWN_HEAD in world.mutants and row.status == "waiting":
        due = any(one.row is not None and one.row.status == "unknown" for one in state.intents[:number])
    return due and row.proof is None and row.attempt < world.sends


def _hands(state: State, place: int, hand: Process | None) -> State:
    return state._replace(workers=(*state.workers[:place], hand, *state.workers[place + 1 :]))


def _sent(world: World, state: State, hand: Process) -> State:
    """The first byte leaves. A process that froze behind its last check may do that until the quiet time is over."""
    request = Request(hand.step, key_of(world, hand.intent, hand.step, hand.generation))
    return state._replace(flying=state.flying | {request})


def _holds(world: World, state: State, hand: Process) -> bool:
    """Whether the claim still holds the row: id, token and attempt."""
    row = state.intents[hand.intent].row
    if row is None or row.step != hand.step:
        return False
    return row.token == hand.attempt or Mutant.REPORT_WITHOUT_TOKEN in world.mutants


def _not_executed(world: World, state: State, hand: Process) -> State | None:
    if not _holds(world, state, hand):
        return state
    return released(world, state, hand.intent, state.change_row(hand.intent, status="pending", token=0))


def _ambiguous(world: World, state: State, hand: Process) -> State | None:
    if not _holds(world, state, hand):
        return state
    if Mutant.COMPENSATION_BEFORE_VERDICT in world.mutants and hand.step == SECOND:
        return ended(world, state.change_row(hand.intent, token=0), hand.intent, "refused")
    return released(world, state, hand.intent, unknown(state, hand.intent))


def _reported(world: World, state: State, hand: Process, word: str) -> State | None:
    if not _holds(world, state, hand):
        found = proven(world, state, hand.intent, hand.step, hand.generation, word)
        return state if found is None and not waits(world, state) else found
    return ended(world, state.change_row(hand.intent, token=0, proof=None), hand.intent, word)


# The provider: a request arrives and acts once. One that is lost simply never does.


def provider(world: World, state: State) -> Iterator[Next]:
    for request in sorted(state.flying):
        landed = state._replace(flying=state.flying - {request})
        first, number, step = state.word(request.key), request.key.intent, request.step
        if first is not None and world.remembers:
            yield Action("provider", "answers as before", number, step), landed
            continue
        for word in ("succeeded", "refused"):
            if word == "succeeded" or step in world.refuses:
                acts = Action("provider", "acts" if word == "succeeded" else "refuses", number, step)
                yield acts, _heard(landed, request, word, first)


def _heard(state: State, request: Request, word: str, first: str | None) -> State:
    if first is None:
        state = state._replace(said=state.said | {(request.key, word)})
    if word == "refused":
        return state
    number = request.key.intent
    counts = tuple(min(n + (place == request.step), 2) for place, n in enumerate(state.effects[number], 1))
    return state._replace(effects=(*state.effects[:number], counts, *state.effects[number + 1 :]))


def webhook(world: World, state: State) -> Iterator[Next]:
    """What the provider has said about a key arrives: late, twice, or never."""
    for key, word in sorted(state.said):
        for step in (key.step,) if key.step else (FIRST, SECOND):
            found = proven(world, state, key.intent, step, key.generation, word)
            yield Action("webhook", f"says {word}", key.intent, step, f"key {key.generation}"), found


# The sweeper: expired leases, waiting rows, rows that are too old, keys that are over, and what they leave.


def sweeper(world: World, state: State) -> Iterator[Next]:
    if world.ordered:
        yield Action("sweeper", "promotes"), wake(world, state, by_sweeper=True)
    for number, row in accepted(state):
        intent = state.intents[number]
        if row.status == "claimed":
            yield Action("sweeper", "ends the lease", number, row.step), _swept(world, state, number, row)
        elif row.status in (*QUEUED, "approval"):
            # Where no send is left, that is all that the rules of the model leave to happen.
            spent = "no send is left" if row.status == "pending" and row.attempt >= world.sends else ""
            too_old = Action("sweeper", "finds too old", number, row.step, spent)
            yield too_old, rests_too_late(world, state, number)
        elif row.status == "held" and row.due:
            yield Action("sweeper", "redrives", number, row.step), back(world, state, number)
        elif row.status == "held" and intent.key == "expired" and not intent.letters and not waits(world, state):
            yield Action("sweeper", "deletes the row", number, row.step), wake(world, state.change(number, row=None))
    if world.expires:
        for number, intent in enumerate(state.intents):
            if _expires(world, intent):
                yield Action("sweeper", "expires the key", number), state.change(number, key="expired")


def _expires(world: World, intent: Intent) -> bool:
    if intent.key not in ("completed", "failed_retryable") or intent.letters:
        return False
    if intent.row is not None and intent.row.due:
        return False
    if Mutant.EXPIRED_WHILE_OPEN in world.mutants:
        return True
    return intent.state == "completed" or intent.recovery_point == 0


def _swept(world: World, state: State, number: int, row: Row) -> State | None:
    if Mutant.COMPENSATION_SENT_TWICE in world.mutants and row.step == UNDO:
        return state.change_row(number, status="pending", token=0)
    return released(world, state, number, unknown(state, number))


# The reconciler: asks, writes what it found, replays, applies what was stored. A replay is an attempt.


def reconciler(world: World, state: State) -> Iterator[Next]:
    hand = state.reconciler
    if hand is None:
        for number, row in accepted(state):
            if not row.token and row.proof is not None:
                applies = Action("reconciler", "applies the stored proof", number, row.step)
                yield applies, ended(world, state.change_row(number, proof=None), number, row.proof)
            elif row.status == "unknown" and not row.token:
                yield from _asking(world, state, number, row)
        return
    idle = state._replace(reconciler=None)
    yield Action("reconciler", "dies", hand.intent, hand.step, hand.stage), _taken_back(idle, hand)
    row = state.intents[hand.intent].row
    if hand.stage == "asked":
        yield Action("reconciler", "writes its verdict", hand.intent, hand.step), _verdict(world, idle, hand)
    elif hand.stage == "claimed":
        sends = Action("reconciler", "sends again", hand.intent, hand.step)
        yield sends, _sent(world, state, hand)._replace(reconciler=hand._replace(stage="sent"))
    else:
        word = state.word(key_of(world, hand.intent, hand.step, hand.generation))
        if word is not None:
            yield Action("reconciler", f"reports {word}", hand.intent, hand.step), _reported(world, idle, hand, word)
        lost = Action("reconciler", "reports ambiguous", hand.intent, hand.step)
        holds = row is not None and row.step == hand.step and row.token == hand.attempt
        yield lost, released(world, idle, hand.intent, unknown(idle, hand.intent)) if holds else idle


def _asking(world: World, state: State, number: int, row: Row) -> Iterator[Next]:
    word = state.word(key_of(world, number, row.step, row.generation))
    if word is not None:
        found = proven(world, state, number, row.step, row.generation, word)
        yield Action("reconciler", f"finds {word}", number, row.step), found
    elif row.quiet or Mutant.ABSENT_AT_ONCE in world.mutants:
        # An absence before the quiet time is over is no verdict, and changes nothing.
        hand = Process("asked", number, row.step, row.attempt, row.generation)
        yield Action("reconciler", "finds nothing", number, row.step), state._replace(reconciler=hand)
    if world.remembers and row.attempt < world.sends:
        attempt = row.attempt + 1
        taken = state.change_row(number, attempt=attempt, token=attempt, quiet=False)
        replay = Process("claimed", number, row.step, attempt, row.generation)
        yield Action("reconciler", "begins a replay", number, row.step), taken._replace(reconciler=replay)


def _verdict(world: World, state: State, hand: Process) -> State:
    """Nothing was there: proven not executed, written only against the row from which it was computed."""
    row = state.intents[hand.intent].row
    if row is None or (row.step, row.status, row.attempt, row.token) != (hand.step, "unknown", hand.attempt, 0):
        return state
    if world.redrives and row.attempt < world.sends:
        return rests(state, hand.intent, None, due=True)
    return rests_too_late(world, state, hand.intent)


def _taken_back(state: State, hand: Process) -> State:
    row = state.intents[hand.intent].row
    if hand.stage == "asked" or row is None or row.step != hand.step or row.token != hand.attempt:
        return state
    return state.change_row(hand.intent, token=0)


# The clock: the one end that nobody writes. Leases, ages and the lives of keys end in the sweeper's statements.


def clock(world: World, state: State) -> Iterator[Next]:
    for number, row in accepted(state):
        if row.status == "unknown" and not row.token and not row.quiet:
            over = Action("clock", "ends the quiet time", number, row.step)
            yield over, _quiet(state.change_row(number, quiet=True), number, row.step)
        elif row.status == "unknown" and row.token:
            yield Action("clock", "ends the take", number, row.step), state.change_row(number, token=0)


def _quiet(state: State, number: int, step: int) -> State:
    """What was sent can act no more, and who has not sent may not any more: the assumption behind the quiet time."""
    flying = frozenset(r for r in state.flying if (r.key.intent, r.step) != (number, step))
    *workers, last = (
        None if hand and (hand.stage, hand.intent, hand.step) == ("claimed", number, step) else hand
        for hand in (*state.workers, state.reconciler)
    )
    return state._replace(flying=flying, workers=tuple(workers), reconciler=last)


# The operator: approves, rejects, redrives, says what became of a call, decides about a partial flow, lets others pass.


def operator(world: World, state: State) -> Iterator[Next]:
    for number, row in accepted(state):
        intent = state.intents[number]
        if row.status == "approval":
            status = "waiting" if blocked(world, state, number) else "pending"
            approved = state.change(number, approved=True).change_row(number, status=status)
            yield Action("operator", "approves", number, row.step), approved
        late = Mutant.REJECTED_SENT in world.mutants and intent.key != "completed" and world.flows[number].approve
        if row.status == "approval" or late:
            yield Action("operator", "rejects", number, row.step), _rejected(world, state, number)
        if world.operator:
            yield from _decisions(world, state, number, row)
    if state.order_held and world.operator:
        passed = state._replace(
            order_held=0,
            intents=tuple(one._replace(letters=one.letters - {"head_refused"}) for one in state.intents),
        )
        if not waits(world, state):
            yield Action("operator", "skips the refused head"), wake(world, passed)


def _rejected(world: World, state: State, number: int) -> State | None:
    return completes(world, state, number, "rejected")


def _decisions(world: World, state: State, number: int, row: Row) -> Iterator[Next]:
    intent = state.intents[number]
    if row.status == "held" and row.proof is None:
        over = intent.key == "expired" and intent.recovery_point == 0
        if row.attempt < world.sends and row.generation < 2 and not over:
            yield Action("operator", "redrives", number, row.step), back(world, state, number)
        if "partial" in intent.letters:
            word = "refused" if row.burned else "cancelled"
            if row.step == SECOND and world.flows[number].undo:
                yield (
                    Action("operator", "lets it compensate", number, row.step),
                    ended(world, state, number, word, partial=False, operator=True),
                )
            yield Action("operator", "resolves it as it is", number, row.step), _as_it_is(world, state, number, word)
    if row.status == "unknown" and not row.token and row.proof is None:
        spoken = state.change(number, word=True)
        said = ended(world, spoken, number, "succeeded", operator=True)
        yield Action("operator", "says that it happened", number, row.step), said
        if row.quiet:
            yield Action("operator", "says that it did not", number, row.step), rests(spoken, number, "too_late")
    later = world.ordered and not waits(world, state) and number + 1 < len(state.intents)
    if later and not intent.skipped and row.status in ("held", "unknown"):
        passed = state.change(number, skipped=True)
        yield Action("operator", "lets its followers pass", number, row.step), wake(world, passed)


def _as_it_is(world: World, state: State, number: int, word: str) -> State | None:
    intent = state.intents[number]
    assert intent.row is not None
    step = intent.row.step
    ends = tuple(word if place == step else end for place, end in enumerate(intent.ends, 1))
    closed = intent._replace(ends=ends, recovery_point=step, letters=intent.letters - {"partial", "too_late"})
    return completes(world, state.put(number, moved(closed, "in_progress")), number, said(world, ends))
