"""The steps of a flow as people see them: what each has come to, which one is open, and what would follow. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from idem.outbox.domain.plan import FlowPlan, Following, StepOutcome

Record = Mapping[str, Any]


def steps_of(plan: FlowPlan, ended: Iterable[Record], open_row: Record | None) -> list[dict[str, Any]]:
    """Each step that has ended, is open or will follow if all goes well, in the order of the plan.

    `state`: ended, open or planned. A compensation stands there only where it has begun, or where the flow is on its
    way back. `then`: of the open step, the name of what follows if it succeeds, is refused, or is cancelled; `end`:
    nothing, `partial`: an operator decides.
    """
    ends = {end["step"]: end for end in ended}
    number = None if open_row is None else open_row["step"]
    coming = _coming(plan, number)
    shown = []
    for place, step in enumerate(plan.steps, 1):
        state = "ended" if place in ends else "open" if place == number else "planned" if place in coming else None
        if state is None:
            continue
        end = ends.get(place, {})
        called = step.kind == "call"
        shown.append(
            {
                "step": place,
                "name": step.name,
                "state": state,
                "kind": step.kind,
                "provider": step.provider if called else None,
                "account": step.account if called else None,
                "undoes": None if step.undoes is None else plan.step(step.undoes).name,
                "outcome": end.get("outcome"),
                "provider_reference": end.get("provider_reference"),
                "provider_status": end.get("provider_status"),
                "object_end": end.get("object_end"),
                "fields": end.get("fields"),
                "ended_at": end.get("ended_at"),
                "then": _then(plan, place) if state == "open" else None,
            }
        )
    return shown


def _coming(plan: FlowPlan, number: int | None) -> set[int]:
    """The steps that follow one after the other if the open one and all of them succeed."""
    found: set[int] = set()
    at: Following = number if number is not None else "end"
    while isinstance(at, int):
        at = plan.after(at, "succeeded")
        if isinstance(at, int):
            found.add(at)
    return found


def _then(plan: FlowPlan, number: int) -> dict[str, str]:
    ends: tuple[StepOutcome, ...] = ("succeeded", "refused", "cancelled")
    if plan.step(number).undoes is not None:
        ends = ("succeeded", "refused")
    return {outcome: _named(plan, plan.after(number, outcome)) for outcome in ends}


def _named(plan: FlowPlan, following: Following) -> str:
    return plan.step(following).name if isinstance(following, int) else following
