"""Only an approval releases a call that wants one: no sweeper, settle, redrive, recovery, retry or proof does."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from approval.waiting import BIG, SMALL, Waiting
from fix_restore import notices
from fix_spine import Spine

from idem import Answer
from idem.decisions import InProgress, Replay, Retrying
from idem.errors import OperatorRefused, Unrenderable
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.recovery import quarantine, release
from idem.outbox.settle.proofs import apply
from idem.outcomes import Pending, Succeeded


async def test_it_waits_for_a_person_and_is_sent_after_that(waiting: Waiting) -> None:
    spine = waiting.spine
    small, big = waiting.asks("small", SMALL), waiting.asks("big", asked_by="shop")
    assert await spine.works() == 1 and await spine.status(small) is None
    await waiting.waits_beside(big, 1)
    done = await waiting.approve(big, by="ann@desk", reason="a known customer")
    assert (done.action, done.state, done.status) == ("approved", "in_progress", "pending")
    assert await spine.works() == 2
    told = await waiting.evidence(big, "approved")
    assert (told["source"], told["from_status"], told["to_status"]) == ("operator", "approval", "pending")
    assert told["details"] == {"by": "ann@desk", "reason": "a known customer", "version": 1, "asked_by": "shop"}
    assert told["database_role"], "the role of the session, and not the owner whose function it is"
    begun = await waiting.evidence(big, "accepted")
    assert (begun["to_status"], begun["details"]) == ("approval", {"approval": "wanted", "asked_by": "shop"})
    assert isinstance(spine.accept("big", BIG), Replay)


async def test_the_same_request_again_waits_too(waiting: Waiting) -> None:
    waiting.asks()
    again = waiting.spine.accept(amount=BIG)
    assert isinstance(again, InProgress) and again.status == "approval"


async def test_an_approval_begins_the_time_of_the_call_anew(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks()
    await spine.advance(86_000)
    await waiting.approve(intent)
    left = await spine.value(
        "SELECT extract(epoch FROM start_before - now())::float8 FROM idem.outbox WHERE intent_id = %(i)s", i=intent
    )
    assert left > 80_000
    assert await spine.works() == 1


async def test_who_is_not_decided_about_in_time_asks_again_by_a_retry(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks()
    await spine.advance(90_000)
    await waiting.refuses("the client must ask again", "approve", intent)
    await spine.sweep()
    assert (await spine.key(intent))["state"] == "failed_retryable" and await spine.letters(intent) == ["too_late"]
    await waiting.refuses("the client's retry, or `idem dlq redrive`, asks for it again", "approve", intent)
    retried = spine.accept(amount=BIG)
    assert retried == Retrying(intent) and isinstance(retried, Retrying) and retried.status == "approval"
    await waiting.waits(intent)
    assert await spine.letters(intent) == []
    await waiting.approve(intent)
    assert await spine.works() == 1


async def test_a_redrive_asks_again_and_releases_nothing(waiting: Waiting) -> None:
    intent = waiting.asks()
    await waiting.at_rest(intent)
    assert (await waiting.spine.act("redrive", intent)).status == "approval"
    await waiting.waits(intent)
    await waiting.refuses("which a redrive does not give", "redrive", intent)
    await waiting.refuses("waits for an approval and was never sent", "resolve_failed", intent)


async def test_a_new_provider_key_releases_nothing(waiting: Waiting) -> None:
    intent = waiting.asks()
    await waiting.at_rest(intent)
    done = await waiting.spine.act("redrive", intent, new_provider_key=True, know_it_did_not_happen=True)
    assert done.status == "approval"
    await waiting.waits(intent)


async def test_what_was_approved_does_not_ask_again(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks()
    await waiting.approve(intent)
    await waiting.at_rest(intent)
    assert spine.accept(amount=BIG) == Retrying(intent)
    assert await spine.status(intent) == "pending" and await spine.works() == 1


async def test_a_definition_that_changes_moves_no_open_row(waiting: Waiting) -> None:
    """What was born waiting waits, and what was accepted before does not begin to."""
    spine = waiting.spine
    asked, free = waiting.asks("asked"), waiting.asks("free", SMALL)
    waiting.define(approve=None)
    await waiting.at_rest(asked)
    assert await spine.status(free) == "held"
    assert spine.accept("asked", BIG) == Retrying(asked) and await spine.status(asked) == "approval"
    waiting.define(approve=lambda params: True)
    assert spine.accept("free", SMALL) == Retrying(free) and await spine.status(free) == "pending"
    assert await spine.works() == 1


@pytest.mark.parametrize("wrong", [lambda p: 1, lambda p: None, lambda p: p["nothing"], lambda p: "no"])
async def test_what_cannot_say_it_releases_nothing(waiting: Waiting, wrong: Any) -> None:
    waiting.define(approve=wrong)
    with pytest.raises(Unrenderable, match="cannot say whether these params need an approval"):
        waiting.spine.accept(amount=BIG)
    assert await waiting.spine.all("SELECT FROM idem.idempotency_keys") == []


async def exists(spine: Spine, key: str, provider: str) -> None:
    """The provider has an object of this provider key, which we never sent."""
    sent = {"amount": BIG, "currency": "eur"} | ({"reference": key} if provider == "keyless" else {})
    headers = {"authorization": f"Bearer {provider}-token"} | ({"idempotency-key": key} if provider == "keyed" else {})
    async with httpx.AsyncClient(base_url=spine.bank.url, verify=False) as client:
        assert (await client.post("/payments", json=sent, headers=headers)).is_success


@pytest.mark.parametrize("proof", [Succeeded("pay_1"), Pending("pay_1")])
async def test_a_proof_that_it_exists_is_applied_as_of_any_queued_call(waiting: Waiting, proof: Any) -> None:
    spine = waiting.spine
    intent = waiting.asks()
    row = await spine.row(intent)
    found = StoredProof(uuid4(), "webhook", proof, Answer(201, b"{}"))
    terms = spine.catalogue.require("pay.keyed")
    assert await spine.run(apply, row["id"], found, Evidence("webhook", "webhook"), terms) == "applied"
    assert await spine.status(intent) == (None if isinstance(proof, Succeeded) else "awaiting")
    await waiting.refuses("already completed|does not wait for an approval", "approve", intent)


async def test_proofs_that_disagree_leave_it_unknown_and_it_is_never_replayed(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks()
    row, terms = await spine.row(intent), spine.catalogue.require("pay.keyed")
    await spine.execute(
        "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome, reference, answer_status, answer_headers,"
        " answer_body) VALUES (%(r)s, %(i)s, 'webhook', 'refused', 'pay_2', 402, '{}', '')", r=row["id"], i=intent,
    )  # fmt: skip
    found = StoredProof(uuid4(), "webhook", Succeeded("pay_1"), Answer(201, b"{}"))
    await spine.run(apply, row["id"], found, Evidence("webhook", "webhook"), terms)
    assert await spine.status(intent) == "unknown"
    await spine.reconcile(after=400, hasten=True, times=3)
    assert (await spine.row(intent))["attempt"] == 0 and spine.effects() == 0


async def test_recovery_doubts_it_as_it_doubts_what_is_queued(waiting: Waiting) -> None:
    spine = waiting.spine
    safe, unsafe = waiting.asks("safe"), waiting.asks("unsafe", operation="pay.keyless")
    await notices(spine, system_identifier=1)
    assert (await spine.row(safe))["doubted_since"] is not None
    assert await spine.status(unsafe) == "unknown", "lost commits may have approved and sent it"
    await waiting.waits(safe)
    await waiting.approve(safe)
    assert await spine.works() == 1, "inside the provider's memory a second send is harmless"


async def test_what_recovery_made_unknown_is_looked_up_and_not_sent(waiting: Waiting) -> None:
    """The provider stores its answers under the key, so any other unknown row would be replayed."""
    spine = waiting.spine
    intent = waiting.asks()
    await spine.run(quarantine.lost, spine.catalogue, by="ann", reason="restored")
    await spine.advance(86_300)
    await spine.sweep()
    assert await spine.status(intent) == "unknown"
    await spine.forced("UPDATE idem.outbox SET doubted_since = now() - interval '1 h', start_before = now() + '1 d'")
    for _ in range(4):
        await spine.reconcile(after=400, hasten=True)
    assert spine.effects() == 0
    assert await spine.all("SELECT FROM idem.evidence WHERE kind = 'replay' OR attempt > 0") == []
    assert await spine.status(intent) in ("held", "approval"), "the look-ups agree that there is nothing"
    if await spine.status(intent) == "held":
        spine.accept(amount=BIG)
    await waiting.waits(intent)


async def test_what_lost_commits_had_sent_is_found(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks(operation="pay.keyless")
    await exists(spine, str((await spine.row(intent))["provider_key"]), "keyless")
    await notices(spine, system_identifier=1)
    await waiting.refuses("does not wait for an approval", "approve", intent)
    for _ in range(6):
        await spine.reconcile(after=400, hasten=True)
    assert await spine.status(intent) is None and spine.effects() == 1


async def test_nothing_was_lost_so_it_waits_as_before(waiting: Waiting) -> None:
    spine = waiting.spine
    intents = [waiting.asks("a"), waiting.asks("b", operation="pay.keyless")]
    await notices(spine, system_identifier=1)
    await spine.run(release.release, spine.catalogue, by="ann", reason="a dump of a stopped system")
    for intent in intents:
        await waiting.waits(intent)
        assert (await spine.row(intent))["doubted_since"] is None


async def test_an_unknown_one_that_is_redriven_asks(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks(operation="pay.keyless")
    await notices(spine, system_identifier=1)
    await spine.act("resolve_failed", intent, know_it_did_not_happen=True)
    assert (await spine.act("redrive", intent, know_it_did_not_happen=True)).status == "approval"
    assert await spine.works() == 0


async def test_an_automatic_redrive_asks(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks()
    await waiting.at_rest(intent)
    await spine.forced(
        "UPDATE idem.outbox SET redrive_at = now(), start_before = now() + '1 h' WHERE intent_id = %(i)s", i=intent
    )
    await spine.reconcile()
    assert await spine.status(intent) == "approval"
    await waiting.waits(intent)


async def test_a_cancel_ends_it(waiting: Waiting) -> None:
    intent = waiting.asks()
    await waiting.spine.act("cancel", intent)
    again = waiting.spine.accept(amount=BIG)
    assert isinstance(again, Replay) and again.answer.status == 409
    await waiting.refuses("already completed", "approve", intent)


async def test_the_key_of_what_nobody_decided_about_expires(waiting: Waiting) -> None:
    """While it waits, its key lives, however long; after that it rests like any other, and goes with its key."""
    spine = waiting.spine
    waiting.define(start_within=30 * 86400)
    intent = waiting.asks()
    await spine.advance(20 * 86400)
    await waiting.waits(intent)
    await waiting.at_rest_after(intent, 11 * 86400)
    await spine.execute(
        "UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x' WHERE intent_id = %(i)s",
        {"i": intent},
    )
    await spine.sweep(after=10 * 86400)
    assert (await spine.key(intent))["state"] == "expired"
    await spine.sweep(after=400 * 86400)
    assert await spine.status(intent) is None
    waiting.asks("k1", BIG)


async def test_a_doubted_one_is_approved_only_while_the_provider_remembers(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks()
    await spine.forced(
        "UPDATE idem.outbox SET doubted_since = now() - interval '2 d' WHERE intent_id = %(i)s", i=intent
    )
    await waiting.refuses("the provider may not remember", "approve", intent)
    with pytest.raises(OperatorRefused, match="lost commits may have sent it"):
        await waiting.reject(intent)
    assert (await waiting.reject(intent, know_it_did_not_happen=True)).state == "completed"
