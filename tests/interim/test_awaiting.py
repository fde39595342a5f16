"""What is awaited with an interim answer is awaited like everything else (hazards 14, 52, 68)."""

from dataclasses import replace
from uuid import uuid4

import pytest
from fix_steps import answered, claim_due_row, claim_one
from interim.shop import KINDS, Shop, body, redirect

from idem import Answer
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Proof
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.proofs import apply, store
from idem.outcomes import Absent, Succeeded
from idem.sweeper.daemon import Sweeper

DAY = 86400
OPEN = Succeeded("pay_1", "requires_action", {"next": {"url": redirect("pay_1")}}, interim=True)


async def prove(shop: Shop, kind: str, proof: Proof, answer: Answer | None = None) -> str:
    """As somebody would who found it under other terms."""
    row = await shop.spine.one("SELECT id FROM idem.outbox")
    terms = shop.spine.catalogue.require(f"pay.{kind}")
    async with shop.spine.database.connection() as connection:
        found = StoredProof(uuid4(), "webhook", proof, answer)
        return await apply(connection, row["id"], found, Evidence("webhook", "webhook"), terms)


async def test_hazard_68_not_found_after_an_interim_answer_is_a_conflict(shop: Shop) -> None:
    intent = await shop.charge("final")
    told = body(await shop.pay("final"))["interim"]
    await shop.spine.advance(1000)
    assert await answered(shop.spine, await claim_due_row(shop.spine, "keyed"), Absent()) == "kept"
    assert await shop.spine.letters(intent) == ["conflict"]
    answer = await shop.pay("final")
    assert (answer.status_code, body(answer)["interim"]) == (202, told)
    assert shop.spine.effects() == 1


async def test_hazard_14_an_interim_answer_does_not_move_the_limit(shop: Shop) -> None:
    intent = await shop.charge("final", f"requires_action:{30 * DAY}")
    for day in range(3):
        assert await shop.spine.letters(intent) == (["pending_too_long"] if day > 1 else [])
        await shop.spine.reconcile(after=DAY * 0.6)
    assert (await shop.pay("final")).status_code == 202
    shop.spine.bank.shift_clock(31 * DAY)
    await shop.spine.reconcile(after=DAY)
    assert (await shop.pay("final")).status_code == 201
    assert await shop.spine.letters(intent) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_hazard_52_an_open_proof_of_an_earlier_attempt_stops_the_next(shop: Shop, kind: str) -> None:
    """Attempt 1 reached the bank and its answer was lost; the row is queued again when the event comes."""
    intent = shop.api.intent(await shop.pay(kind))
    assert await prove(shop, kind, OPEN, Answer(201, {"redirect": redirect("pay_1")})) == "applied"
    assert await shop.spine.works() == 0
    row = await shop.spine.row_if_any(intent)
    assert (row and row["status"]) == ("awaiting" if kind == "final" else None)


async def test_a_proof_that_was_found_under_other_terms(shop: Shop) -> None:
    """Stored while the operation awaited the end, applied when it completes on existence: there is no answer yet."""
    intent = shop.api.intent(await shop.pay("exists"))
    assert await prove(shop, "exists", OPEN) == "applied"
    answer = await shop.pay("exists")
    assert (answer.status_code, body(answer)["interim"]) == (
        202, {"reference": "pay_1", "status": "requires_action"},
    )  # fmt: skip
    # Whoever looks next renders one.
    await shop.spine.advance(100)
    assert await answered(shop.spine, await claim_due_row(shop.spine, "keyed"), OPEN) == "settled"
    assert body(await shop.pay("exists"))["redirect"] == redirect("pay_1")
    assert await shop.events(intent) == [("completed", "succeeded", True)]


async def test_and_the_other_way_round(shop: Shop) -> None:
    """An answer was rendered for it; now the end is awaited, and that answer is told to nobody."""
    await shop.pay("final")
    assert await prove(shop, "final", OPEN, Answer(201, {"too": "early"})) == "applied"
    answer = await shop.pay("final")
    assert (answer.status_code, body(answer)["interim"]["reference"]) == (202, "pay_1")


async def test_a_stored_proof_keeps_what_was_seen(shop: Shop) -> None:
    intent = shop.api.intent(await shop.pay("final"))
    row = await shop.spine.one("SELECT id FROM idem.outbox")
    found = StoredProof(uuid4(), "webhook", OPEN, None, interim={"go": "there"})
    assert await shop.spine.run(store, row["id"], found, Evidence("webhook", "webhook")) == "stored"
    kept = await shop.spine.one("SELECT outcome, status, interim FROM idem.proofs")
    assert kept == {"outcome": "interim", "status": "requires_action", "interim": {"go": "there"}}
    await shop.spine.reconcile()
    assert body(await shop.pay("final"))["interim"] == {"go": "there"}
    assert (await shop.stored(intent))["provider_reference"] == "pay_1"


async def test_a_daemon_without_the_operation_only_awaits(shop: Shop) -> None:
    """A sweeper that does not know it folds the stored proof; who knows it completes the key."""
    intent = shop.api.intent(await shop.pay("exists"))
    claimed = await claim_one(shop.spine, "keyed")
    async with shop.spine.database.connection() as connection:
        found = StoredProof(uuid4(), "webhook", OPEN, Answer(201, {"go": "there"}))
        await store(connection, claimed.row.id, found, Evidence("webhook", "webhook"))
    await shop.spine.advance(60)
    await Sweeper(shop.spine.database, replace(shop.spine.catalogue, operations={})).run_once()
    assert await shop.spine.status(intent) == "awaiting"
    await shop.spine.advance(100)
    await answered(shop.spine, await claim_due_row(shop.spine, "keyed"), OPEN)
    assert (await shop.pay("exists")).status_code == 201
