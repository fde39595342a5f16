"""Flows with local steps: each writes a row of the shop's own, beside the calls at the bank."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from fix_spine import Spine, operation
from flows.order import Flows, answer
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem.outbox.domain.operation import OperationSpec, StepSpec
from idem.outbox.providers.local import LocalProvider

ROWS = """
CREATE TABLE public.rows (step text NOT NULL, amount integer NOT NULL, said text NOT NULL, at xid8 NOT NULL
                          DEFAULT pg_current_xact_id());
"""
WRITE = text("INSERT INTO public.rows (step, amount, said) VALUES (:step, :amount, :said)")


def before(results: Any) -> str:
    """What the steps before have come to."""
    return " ".join(f"{name}:{end.outcome}" for name, end in results.items())


def writes(name: str, returned: Any = None) -> Callable[..., Any]:
    """The function of a local step: one row, which names the steps before."""

    def run(db: Session, params: Any, results: Any) -> Any:
        db.execute(WRITE, {"step": name, "amount": params["amount"], "said": before(results)})
        return returned

    return run


def local(name: str, run: Callable[..., Any] | None = None, returned: Any = None, **changes: Any) -> StepSpec:
    return StepSpec(name, "local", run=run or writes(name, returned), **changes)


def flow(*steps: StepSpec, name: str = "order", **changes: Any) -> OperationSpec:
    """A flow of these steps: calls at the bank, and local ones."""
    base = operation(name, "keyed", answer=answer, **changes)
    own = {"provider": "local", "account": "local"}
    made = tuple(replace(base, step=each, **(own if each.kind == "local" else {})) for each in steps)
    return replace(base, provider=made[0].provider, account=made[0].account, steps=made)


class LocalFlows(Flows):
    """A spine whose operation `order` has local steps."""

    def __init__(self, spine: Spine) -> None:
        super().__init__(spine)
        known = {**spine.catalogue.providers, "local": LocalProvider()}
        spine.catalogue = replace(spine.catalogue, providers=known)
        spine.acceptor.providers = known

    def define(self, *steps: StepSpec, **changes: Any) -> None:
        known = {**self.spine.catalogue.operations, "order": flow(*steps, **changes)}
        self.spine.catalogue = replace(self.spine.catalogue, operations=known)
        self.spine.acceptor.operations = known

    async def rows(self) -> list[tuple[str, str]]:
        """What local steps have written: the step and what it knew, in the order of writing."""
        found = await self.spine.all("SELECT step, said FROM public.rows ORDER BY at")
        return [(row["step"], row["said"]) for row in found]

    async def row(self, intent: UUID) -> Any:
        return await self.spine.row_if_any(intent)

    async def due(self) -> None:
        """Let the time pass until what failed is tried again."""
        await self.spine.execute("UPDATE idem.outbox SET available_at = statement_timestamp()")

    async def answer(self, intent: UUID) -> Any:
        key = await self.key(intent)
        return key["state"], key["response_status"]
