"""Which events there are: each path writes its own once, numbered without a gap, with all that its reader needs."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

from fix_spine import Spine
from sqlalchemy.orm import Session

from idem import Answer, Settled
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.handlers.handler import handler
from idem.outbox.handlers.runner import HandlerRunner
from idem.outbox.operator import actions
from idem.outbox.settle.proofs import apply
from idem.outcomes import Refused, Succeeded

MEMBERS = {"intent", "number", "tenant", "operation", "label", "state", "outcome", "provider_reference"}


async def events(spine: Spine, intent: UUID) -> list[str]:
    """The types of an intent's events; their numbers are 1, 2, 3 … and their payloads whole."""
    rows = await spine.all(
        "SELECT number, type, payload FROM idem.events WHERE aggregateid = %(i)s ORDER BY number", i=intent
    )
    for number, row in enumerate(rows, 1):
        assert row["number"] == row["payload"]["number"] == number
        assert set(row["payload"]) >= MEMBERS and row["payload"]["intent"] == str(intent)
    return [row["type"] for row in rows]


async def prove(spine: Spine, row: UUID, proof: Succeeded | Refused, operation: str = "pay.keyed") -> str:
    found = StoredProof(uuid4(), "webhook", proof, Answer(201, {}))
    return await spine.run(apply, row, found, Evidence("webhook", "webhook"), spine.catalogue.require(operation))


async def the_row(spine: Spine, intent: UUID) -> UUID:
    return UUID(str((await spine.row(intent))["id"]))


async def test_hazard_58_automatic_redrives_say_nothing_before_the_end(spine: Spine) -> None:
    """The handler of an intent that is redriven hears one thing, when it has ended."""
    heard: list[tuple[int, str, str | None]] = []

    def hear(db: Session, settled: Settled[Any]) -> None:
        heard.append((settled.number, settled.event, settled.outcome))

    known = handler("pay.keyless", hear)
    runner = HandlerRunner(spine.url, {known.name: known})
    await runner.run_once()
    intent = await spine.sent(operation="pay.keyless", faults=["drop_before_acting"])
    for _ in range(2):
        await spine.reconcile(after=200, hasten=True)
        await runner.run_once()
    await spine.reconcile(after=100)
    assert (await spine.row(intent))["redrives"] == 1
    await spine.work()
    await runner.run_once()
    await runner.close()
    assert heard == [(1, "completed", "succeeded")]
    assert await events(spine, intent) == ["completed"]


async def test_rest_a_retry_and_the_end_are_told_in_their_order(spine: Spine) -> None:
    intent = await spine.sent(amount=-1)
    assert await events(spine, intent) == ["rested"]
    assert await prove(spine, await the_row(spine, intent), Succeeded("pay_1")) == "applied"
    assert await events(spine, intent) == ["rested", "corrected"]


async def test_a_cancelled_intent_is_told_once(spine: Spine) -> None:
    intent = spine.accepted()
    await spine.run(actions.cancel, spine.catalogue, intent, by="anna", reason="ordered twice")
    assert await events(spine, intent) == ["completed"]


async def test_proofs_that_contradict_at_once_are_numbered_without_a_gap(spine: Spine) -> None:
    """Eight of them compare themselves with a step that is done, in eight transactions: none aborts, none is lost."""
    intent = spine.accepted()
    row = await the_row(spine, intent)
    await spine.work()
    assert await events(spine, intent) == ["completed"]
    assert await asyncio.gather(*(prove(spine, row, Succeeded(f"other_{n}")) for n in range(8))) == ["conflict"] * 8
    assert await events(spine, intent) == ["completed", *["corrected"] * 8]


async def test_the_end_and_what_contradicts_it_at_the_same_moment(spine: Spine) -> None:
    """Whoever comes first settles, all others are compared; each event has its number, whoever waits for whom."""
    for attempt in range(5):
        intent = spine.accepted(f"k{attempt}", amount=100 + attempt)
        row = await the_row(spine, intent)
        became = await asyncio.gather(*(prove(spine, row, Succeeded(f"pay_{attempt}_{n}")) for n in range(5)))
        assert became.count("applied") == 1
        stored = became.count("stored")
        assert await events(spine, intent) == ["completed", *["corrected"] * (4 - stored)]
