"""Flows at the bank: each step is a payment of its own amount, so that effects are counted by step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from fix_spine import Spine, operation

from idem import Answer
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.domain.operation import OperationSpec, Results, StepSpec
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle import proofs

AMOUNTS = {"charge": 100, "ship": 20, "receipt": 3, "refund": 1100, "unship": 1020}


def request(name: str) -> Callable[[Any, Results], ProviderRequest]:
    """A payment of the step's own amount, which names what the steps before have come to."""

    def build(params: Any, results: Results) -> ProviderRequest:
        before = {name: end.reference for name, end in results.items() if end.succeeded}
        return ProviderRequest(
            "POST", "/payments", json={"amount": AMOUNTS[name], "currency": "eur", "metadata": {"before": str(before)}}
        )

    return build


def step(name: str, **changes: Any) -> StepSpec:
    return StepSpec(name, "call", request=request(name), **changes)


THREE = (
    step("charge"),
    step("ship", on_refusal="compensate"),
    step("receipt", on_refusal="compensate"),
    step("unship", undoes="ship"),
    step("refund", undoes="charge"),
)
"""Each refusal after the first undoes what is done."""


OPERATOR = (step("charge"), step("ship", on_refusal="operator"), step("refund", undoes="charge"))
"""An operator decides about a refused shipment."""


def answer(outcome: Any, intent: str) -> Answer:
    told = {name: end.outcome for name, end in outcome.steps.items()}
    return Answer(201 if outcome.succeeded else 402, {"payment": outcome.reference, "steps": told})


def flow(*steps: StepSpec, name: str = "order", **changes: Any) -> OperationSpec:
    """A flow of these steps, all of them at the bank."""
    base = operation(name, "keyed", answer=answer, **changes)
    return replace(base, steps=tuple(replace(base, step=each) for each in steps))


@dataclass
class Flows:
    """A spine whose operation `order` has steps."""

    spine: Spine

    def define(self, *steps: StepSpec, **changes: Any) -> None:
        known = {**self.spine.catalogue.operations, "order": flow(*steps, **changes)}
        self.spine.catalogue = replace(self.spine.catalogue, operations=known)
        self.spine.acceptor.operations = known

    def accepted(self, key: str = "k1", **options: Any) -> UUID:
        return self.spine.accepted(key, operation="order", **options)

    async def work(self, times: int = 1, **options: Any) -> None:
        await self.spine.work(times=times, **options)

    def effects(self) -> list[str]:
        """The steps that the bank has carried out, in their order."""
        names = {amount: name for name, amount in AMOUNTS.items()}
        return [names[each.amount] for each in self.spine.bank.log.payments() if each.status != "declined"]

    async def ends(self, intent: UUID) -> list[tuple[str, str]]:
        ended = "SELECT name, outcome FROM idem.steps WHERE intent_id = %(i)s ORDER BY step"
        return [(row["name"], row["outcome"]) for row in await self.spine.all(ended, i=intent)]

    async def prove(self, row: Any, proof: Any) -> None:
        """Apply a proof about a row, as a webhook brings it."""
        found = StoredProof(uuid4(), "webhook", proof, Answer(201, b"{}"))
        terms = self.spine.catalogue.cautious("order", "keyed", row["step_name"])
        await self.spine.run(proofs.apply, row["id"], found, Evidence("webhook", "webhook", "succeeded"), terms)

    async def act(self, action: str, intent: UUID, **options: Any) -> Any:
        return await self.spine.act(action, intent, **options)

    async def key(self, intent: UUID) -> Any:
        return await self.spine.one("SELECT * FROM idem.idempotency_keys WHERE intent_id = %(i)s", i=intent)

    async def intent(self, intent: UUID) -> Any:
        return await self.spine.one("SELECT * FROM idem.intents WHERE id = %(i)s", i=intent)

    async def partial(self) -> UUID:
        """An order that is charged, and whose shipment was refused."""
        self.define(*OPERATOR)
        intent = self.accepted()
        await self.work()
        await self.work(faults=["decline"])
        return intent
