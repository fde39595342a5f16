"""What the model knows: a world (what is configured) and a state (what the database, the processes, the network and the
provider hold at one instant). Every value is immutable and hashable, so that a state can be found again.

The model has no clock. Leases, quiet times and lives of keys end at any moment: each such end is an action
(`actions.py`), and what the design lets follow from one another cannot happen in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from model.mutants import Mutant

FIRST, SECOND, UNDO = 1, 2, 3
"""The steps of a plan: two forward ones, and the compensation of the first."""
DONE = ("succeeded", "skipped")
QUEUED = ("pending", "waiting", "unfrozen")
BLOCKS_RETRY = frozenset({"partial"})


@dataclass(frozen=True)
class Flow:
    """One operation. `steps`: 1 or 2 forward steps. `undo`: the first step has a compensation. `completes`: the step
    whose success completes the key (0: the last one). `optional`: the second step may be skipped by its `when`."""

    steps: int = 2
    on_refusal: str = "compensate"
    undo: bool = True
    completes: int = 0
    approve: bool = False
    optional: bool = False


@dataclass(frozen=True)
class World:
    """What is configured, and how far the model goes.

    `remembers`: the provider answers a key that it knows with its first answer; else nothing is ever replayed, and each
    request that arrives is an effect of its own. `refuses`: the steps that it may refuse. `sends`: of one row, replays
    included. `ordered`: all intents have one ordering key. `hold`: a refused head holds its followers. `patient`: a
    statement that ends an intent waits for an accept that holds the ordering key; else it leaves the next row to the
    sweeper. `redrives`: a verdict redrives by itself while sends are left. `operator` (decisions other than approvals),
    `cancels`, `expires`: these actions exist. `merges`: states that cannot be told apart are one (`canonical`).
    """

    name: str
    flows: tuple[Flow, ...] = (Flow(),)
    remembers: bool = True
    refuses: frozenset[int] = frozenset({SECOND})
    sends: int = 2
    workers: int = 2
    ordered: bool = False
    hold: bool = False
    patient: bool = False
    redrives: bool = False
    operator: bool = True
    cancels: bool = True
    expires: bool = True
    merges: bool = True
    mutants: frozenset[Mutant] = field(default_factory=frozenset)


class Row(NamedTuple):
    """The open outbox row of an intent. `attempt` counts its calls; `token` is the attempt that holds it now, 0: none.

    `generation`: of its provider key. `burned`: the provider has refused under this key. `quiet`: its quiet time is
    over. `proof`: what was proven while it was held, not applied yet. `due`: it redrives by itself.
    """

    step: int
    status: str
    attempt: int = 0
    token: int = 0
    generation: int = 1
    burned: bool = False
    quiet: bool = False
    proof: str | None = None
    due: bool = False


class Intent(NamedTuple):
    """An intent with its key, its row and its steps. `key` is what the client gets; `none` and `accepting` come before
    its accept has committed. `ends`: of the steps 1, 2 and the compensation. `answer`: the stored one, as its word and
    the steps that stand. `word`: an operator has said, without a proof, what became of a call. `skipped`: an operator
    let its followers pass.
    """

    key: str = "none"
    state: str = "in_progress"
    row: Row | None = None
    ends: tuple[str | None, str | None, str | None] = (None, None, None)
    recovery_point: int = 0
    answer: tuple[str, tuple[int, ...]] | None = None
    letters: frozenset[str] = frozenset()
    approved: bool = False
    word: bool = False
    skipped: bool = False


class Process(NamedTuple):
    """A worker or the reconciler that has something in hand; None is one that has not. It may stop between any two of
    its actions, for ever (it died) or until anything else has happened (it froze).

    `stage`: `claimed` (no byte has left), `sent` (some may have), or of the reconciler `asked` (it found nothing).
    """

    stage: str
    intent: int
    step: int
    attempt: int
    generation: int


class ProviderKey(NamedTuple):
    """The key that a request carries: derived from the intent, the step and the generation."""

    intent: int
    step: int
    generation: int


class Request(NamedTuple):
    """A request on its way: it may act at any moment until the quiet time of its row is over."""

    step: int
    key: ProviderKey


class State(NamedTuple):
    """One instant. `said`: the provider's first word about a key. `effects`: how often each step has happened there.

    `order_held`: the place in the order (from 1) of a head that was refused, and whose followers an operator must let
    pass; 0: none.
    """

    intents: tuple[Intent, ...]
    workers: tuple[Process | None, ...]
    reconciler: Process | None = None
    flying: frozenset[Request] = frozenset()
    said: frozenset[tuple[ProviderKey, str]] = frozenset()
    effects: tuple[tuple[int, int, int], ...] = ()
    order_held: int = 0

    def word(self, key: ProviderKey) -> str | None:
        """What the provider has said about a key."""
        for known, word in self.said:
            if known == key:
                return word
        return None

    def change(self, number: int, **values: Any) -> State:
        """Another intent in the place of this one."""
        return self.put(number, self.intents[number]._replace(**values))

    def put(self, number: int, intent: Intent) -> State:
        return self._replace(intents=(*self.intents[:number], intent, *self.intents[number + 1 :]))

    def change_row(self, number: int, **values: Any) -> State:
        row = self.intents[number].row
        assert row is not None
        return self.change(number, row=row._replace(**values))


class Action(NamedTuple):
    """What happens: one statement or transaction of idem, or one instant of the provider, the network or the clock."""

    who: str
    what: str
    intent: int = -1
    step: int = 0
    about: str = ""

    def __str__(self) -> str:
        of = "" if self.intent < 0 else f" intent {self.intent + 1}" + (f" step {self.step}" if self.step else "")
        return f"{self.who}: {self.what}{of}" + (f" ({self.about})" if self.about else "")


def key_of(world: World, intent: int, step: int, generation: int) -> ProviderKey:
    """The provider key of a step."""
    return ProviderKey(intent, 0 if Mutant.STEP_KEY_WITHOUT_STEP in world.mutants else step, generation)


def begins(world: World) -> State:
    """Nothing is accepted yet."""
    return State(
        intents=tuple(Intent() for _ in world.flows),
        workers=(None,) * world.workers,
        effects=((0, 0, 0),) * len(world.flows),
    )


def canonical(world: World, state: State) -> State:
    """The one state that stands for all that cannot be told apart.

    Which worker is which makes no difference. A process that waits for an answer, and whose claim holds the row no
    more, can only bring a proof, which the webhook brings too: it is as good as idle. So is one that knows an absence
    that cannot be written any more, and one whose call the provider would only answer as before. So is such a request.
    """
    if not world.merges:
        return state._replace(workers=tuple(sorted(state.workers, key=lambda hand: hand or ())))
    if state.flying and world.remembers:
        known = {key for key, _ in state.said}
        flying = frozenset(request for request in state.flying if request.key not in known)
        state = state._replace(flying=flying) if flying != state.flying else state
    if not any(state.workers) and state.reconciler is None:
        return state
    hands = state.workers
    if Mutant.REPORT_WITHOUT_TOKEN not in world.mutants:
        hands = tuple(hand if hand and _matters(world, state, hand) else None for hand in hands)
    last = state.reconciler
    if last is not None and not _matters(world, state, last):
        last = None
    hands = tuple(sorted(hands, key=lambda hand: hand or ()))
    return state._replace(workers=hands, reconciler=last)


def _matters(world: World, state: State, hand: Process) -> bool:
    row = state.intents[hand.intent].row
    if row is not None and row.step == hand.step and row.token == hand.attempt:
        return True
    if hand.stage == "claimed":
        key = key_of(world, hand.intent, hand.step, hand.generation)
        return not world.remembers or state.word(key) is None
    if hand.stage == "asked":
        return row is not None and (row.step, row.status, row.attempt, row.token) == (
            hand.step, "unknown", hand.attempt, 0,
        )  # fmt: skip
    return False


def stands(ends: tuple[str | None, ...]) -> tuple[int, ...]:
    """The forward steps that were done and not undone, as their recorded ends say."""
    return tuple(
        s for s in (FIRST, SECOND) if ends[s - 1] == "succeeded" and not (s == FIRST and ends[2] == "succeeded")
    )


def stand_there(effects: tuple[int, int, int]) -> tuple[int, ...]:
    """The same as the provider has it."""
    return tuple(s for s in (FIRST, SECOND) if effects[s - 1] and not (s == FIRST and effects[2]))


def shown(state: State) -> Mapping[str, object]:
    """A state for people: what is not as it began."""
    return {name: value for name, value in state._asdict().items() if value}
