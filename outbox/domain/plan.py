"""The plan of a flow: its steps as they were when the intent was accepted, their ends, and which step follows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from idem.outbox.domain.outcomes import Fields

OnRefusal: TypeAlias = Literal["stop", "compensate", "operator"]
StepKind: TypeAlias = Literal["call", "local"]
StepOutcome: TypeAlias = Literal["succeeded", "refused", "skipped", "cancelled"]
DONE: frozenset[StepOutcome] = frozenset({"succeeded", "skipped"})
"""After these the flow goes on."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan, as `intents.plan` has it: what its row is made of, and what follows its refusal.

    `completes`: its success completes the key. `undoes`: of a compensation, the number of the step that it undoes.
    """

    name: str
    kind: StepKind
    provider: str
    account: str
    origin: str = ""
    replay_window: int = 0
    marks_start: bool = False
    on_refusal: OnRefusal = "stop"
    completes: bool = False
    undoes: int | None = None


@dataclass(frozen=True, slots=True)
class StepEnd:
    """What a step of a flow has come to. `reference`, `status` and `fields` are its provider's, or what its function
    returned."""

    number: int
    name: str
    outcome: StepOutcome
    reference: str | None = None
    status: str | None = None
    fields: Fields = field(default_factory=dict)
    undoes: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether its effect exists."""
        return self.outcome == "succeeded"


Following: TypeAlias = int | Literal["end", "partial"]
"""The number of the step that follows; `end`: none, the flow is over; `partial`: an operator must decide."""


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """The forward steps in their order, then the compensations in the order in which they would run (the reverse of the
    steps that they undo). Step k is `steps[k - 1]`, so a number stands for one step of its intent, for ever."""

    steps: tuple[PlannedStep, ...]

    def step(self, number: int) -> PlannedStep:
        return self.steps[number - 1]

    @property
    def forward(self) -> int:
        """How many forward steps there are."""
        return sum(step.undoes is None for step in self.steps)

    def after(self, number: int, outcome: StepOutcome) -> Following:
        """What follows the end of a step."""
        ended = self.step(number)
        if ended.undoes is not None:
            return self._next(number) if outcome in DONE else "partial"
        if outcome in DONE:
            return number + 1 if number < self.forward else "end"
        if outcome == "refused" and ended.on_refusal == "operator":
            return "partial"
        if outcome == "refused" and ended.on_refusal == "stop":
            return "end"
        return self.undoing(number)

    def undoing(self, number: int) -> Following:
        """The first compensation of what was done before this step."""
        for place, step in enumerate(self.steps, 1):
            if step.undoes is not None and step.undoes < number:
                return place
        return "end"

    def _next(self, number: int) -> Following:
        return number + 1 if number < len(self.steps) else "end"

    def written(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [asdict(step) for step in self.steps]


def plan(written: Sequence[Mapping[str, Any]] | None) -> FlowPlan | None:
    """The plan of `intents.plan`; None: the operation has one call."""
    return None if written is None else FlowPlan(tuple(PlannedStep(**step) for step in written))


def ends(written: Sequence[Mapping[str, Any]] | None) -> tuple[StepEnd, ...]:
    """The ends of `idem.step_ends`."""
    return tuple(StepEnd(**end) for end in written or ())


def result(plan: FlowPlan, ended: Sequence[StepEnd]) -> StepEnd:
    """The end that says what the flow has come to: the step that did not succeed; else the one that completes the key,
    else the last one that did something."""
    forward = [end for end in ended if end.undoes is None]
    failed = [end for end in forward if end.outcome not in DONE]
    completing = [end for end in forward if end.succeeded and plan.step(end.number).completes]
    done = [end for end in forward if end.succeeded]
    return (failed or completing or done[-1:] or forward[-1:])[0]
