"""`operations.<name>.steps` in idem.toml: an operation of several calls, declared."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from idem.outbox.config.call_settings import CallSettings
from idem.outbox.config.operation_settings import AnswerSettings, AnswerTemplate, OperationTable
from idem.outbox.config.source import SettingPath
from idem.outbox.providers.outcome_rules import Condition, conditions, wanted
from idem.outbox.values import json_pointer

RESULTS = "steps.*"
"""The names under `idem.` that are results of steps."""


class UndoSettings(CallSettings):
    """A call of an operation that has several: a step, or what undoes one."""

    OURS: ClassVar[frozenset[str]] = CallSettings.OURS | {RESULTS}

    name: str
    """Name of the step, a-z, 0-9 and _: results of earlier steps are {idem.steps.NAME.reference}, .status, .outcome and
    .fields.FIELD in path, body and headers. Rename it only while no flow is open: an open one finds its step by this
    name."""
    when: dict[str, Any] = Field(default_factory=dict)
    """Makes the step conditional: JSON pointer into the params (or to the result of an earlier step, as
    /idem/steps/charge/fields/risk) to a value, a list of values, or {exists = true}. If one of them does not hold, the
    step is skipped, with evidence. Default always."""

    @field_validator("when")
    @classmethod
    def _are_conditions(cls, value: dict[str, Any]) -> dict[str, Any]:
        for at, each in value.items():
            if not json_pointer.parse(at):
                raise ValueError("a condition is about a member of the params: name it, as /email")
            wanted(each)
        return value

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What `when` demands."""
        return conditions(self.when)


class StepSettings(UndoSettings):
    """One step of an operation, in the order in which they stand."""

    on_refusal: Literal["stop", "compensate", "operator"] | None = None
    """What follows if the provider refuses the step: "stop" (the refusal is the answer), "compensate" (what was done is
    undone, in reverse) or "operator" (dead letter partial). Every step after the first says it; default of the first
    stop."""
    undo: UndoSettings | None = None
    """The call that undoes this step, if a later one is refused with compensate, or an operator says so; default none:
    it cannot be undone."""


class FlowAnswerTemplate(AnswerTemplate):
    """The answer to the client: rendered from the end of the flow, and never changed once it is stored."""

    OURS: ClassVar[frozenset[str]] = AnswerTemplate.OURS | {RESULTS}

    body: Any = None
    """JSON body with places {idem.intent}, {idem.reference}, {idem.status}, {idem.state} and the fields of the outcome,
    e.g. {amount?}; with steps also {idem.steps.NAME.reference}, .status, .outcome and .fields.FIELD; default null."""


class FlowAnswerSettings(AnswerSettings):
    """The answers of an operation that has steps."""

    succeeded: FlowAnswerTemplate | None = None
    """Answer where the effect exists; default 201 with intent, state, reference, result."""
    refused: FlowAnswerTemplate | None = None
    """Answer where the provider refused; default 402 problem+json with its code."""


class FlowSettings(OperationTable):
    """One named effect that takes several calls."""

    steps: list[StepSettings]
    """The calls of an operation that makes several, one after the other, each [[operations."NAME".steps]]. Then the
    operation has no provider, account, method, path, body and headers of its own. At most 20."""
    completes_when: str | None = None
    """With steps: "step:NAME", the step whose success completes the key while later ones run; default the end of the
    last one."""
    answer: FlowAnswerSettings = FlowAnswerSettings()
    """What the client is told at the end."""

    @property
    def calls(self) -> list[tuple[SettingPath, CallSettings]]:
        return [(at, call) for at, call, _ in self.numbered]

    @property
    def numbered(self) -> list[tuple[SettingPath, UndoSettings, StepSettings | None]]:
        """The calls in the order of a plan, each with the path of its settings and the step that it undoes."""
        forward: list[tuple[SettingPath, UndoSettings, StepSettings | None]] = [
            (("steps", place), step, None) for place, step in enumerate(self.steps)
        ]
        undoing: list[tuple[SettingPath, UndoSettings, StepSettings | None]] = [
            (("steps", place, "undo"), step.undo, step)
            for place, step in enumerate(self.steps)
            if step.undo is not None
        ]
        return [*forward, *reversed(undoing)]
