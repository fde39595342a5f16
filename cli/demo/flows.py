"""The operations of several calls in a demo: reserve, charge, receipt, and what undoes the first two.

Each call names its order and its step in its path, so that the bank's own log says what was done of which flow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from idem import Answer, Idem, Operation, Request, Results, Step
from idem.cli.demo.scenario import KEYED, KEYLESS, flow_operation
from idem.outcomes import Refused, Succeeded


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One step as the proof expects it. `undoes`: the name of the step that it undoes; None: it is a forward step."""

    name: str
    provider: str
    undoes: str | None = None


def expected() -> Mapping[str, Sequence[FlowStep]]:
    """The steps of each operation in the order of their numbers: the forward ones, then those that undo, in reverse."""
    return {flow_operation(provider): _steps(provider, other) for provider, other in _pairs()}


def define(idem: Idem) -> Mapping[str, Operation[Any]]:
    """Both operations, for the clients that accept them and for the daemons that work on them."""
    made = {}
    for provider, other in _pairs():
        reserve, charge, receipt, refund, release = _steps(provider, other)
        steps = (
            _step(reserve, undo=_step(release)),
            _step(charge, on_refusal="compensate", undo=_step(refund)),
            _step(receipt, on_refusal="compensate"),
        )
        name = flow_operation(provider)
        made[name] = idem.operation(name, steps=steps, answer=_answer, label=lambda p: p["order"])
    return made


def _pairs() -> Sequence[tuple[str, str]]:
    return (KEYED, KEYLESS), (KEYLESS, KEYED)


def _steps(provider: str, other: str) -> Sequence[FlowStep]:
    # The receipt goes through the other account: a flow's steps need not share a provider.
    return (
        FlowStep("reserve", provider),
        FlowStep("charge", provider),
        FlowStep("receipt", other),
        FlowStep("refund", provider, "charge"),
        FlowStep("release", provider, "reserve"),
    )


def _step(step: FlowStep, **more: Any) -> Step:
    return Step(step.name, step.provider, request=_request(step), **more)


def _request(step: FlowStep) -> Callable[[Any, Results], Request]:
    def build(params: Any, results: Results) -> Request:
        body = {"amount": params["amount"], "currency": "eur", "order": params["order"]}
        body |= {"after": {name: end.reference for name, end in results.items() if end.succeeded}}
        faults = params.get("faults", {}).get(step.name)
        body |= {"bank_fault": faults} if faults else {}
        return Request("POST", f"/payments?order={params['order']}&step={step.name}", json=body)

    return build


def _answer(outcome: Succeeded | Refused) -> Answer:
    """Says what each step has come to: the proof compares it with the bank's log."""
    steps = {name: end.outcome for name, end in outcome.steps.items()}
    return Answer(201 if outcome.succeeded else 402, {"payment": outcome.reference, "steps": steps})
