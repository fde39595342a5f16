"""No command of an operator's has a call made twice, unless the operator says that it did not happen."""

from dataclasses import replace
from uuid import UUID

import pytest
from fix_desk import Desk

from idem.outbox.domain.contract import LookupRule

WHY = ("--reason", "customer waits")
SURE = "--i-know-it-did-not-happen"


async def exhausted(desk: Desk) -> tuple[UUID, UUID]:
    """The provider acted, answered 500, and repeats that 500 under the key; nothing can be looked up."""
    spine = desk.spine
    provider = spine.provider("keyed")
    spine.change("keyed", contract=replace(provider.contract, lookup=LookupRule()), lookups=())
    intent = await spine.sent("k", faults=["act_then_500"])
    await spine.reconcile(after=700)
    await spine.advance(700)
    return intent, await desk.bury(intent, "reconcile_exhausted")


async def test_a_new_key_for_what_may_have_happened_is_refused_and_names_what_settles_it(desk: Desk) -> None:
    intent, letter = await exhausted(desk)
    before = await desk.spine.row(intent)
    result = await desk.cli("dlq", "redrive", letter, "--new-provider-key", *WHY, "--yes", code=1)
    for words in ("nothing proves", "may pay twice", "answers a second call", "reconcile --now", "console", SURE):
        assert words in result.err, result.err
    assert "23h" in result.err, "the window that is left"
    assert "under the same provider key k" not in result.err
    assert await desk.spine.row(intent) == before
    await desk.spine.work()
    assert desk.spine.effects() == 1


async def test_the_same_key_is_sent_again_while_the_provider_remembers_it_and_happens_once(desk: Desk) -> None:
    intent, letter = await exhausted(desk)
    result = await desk.cli("dlq", "redrive", letter, *WHY, "--yes", code=0)
    assert "same provider key" in result.err and "NEW" not in result.err
    row = await desk.spine.one(
        "SELECT start_before < now() + interval '24 h' - interval '700 s' AS inside FROM idem.outbox"
        " WHERE intent_id = %(i)s", i=intent,
    )  # fmt: skip
    assert row["inside"], "it is not started any later than the provider remembers the key"
    await desk.spine.work()
    assert desk.spine.effects() == 1


async def test_the_override_is_on_record_and_the_preview_has_one_key(desk: Desk) -> None:
    intent, letter = await exhausted(desk)
    result = await desk.cli("dlq", "redrive", letter, "--new-provider-key", SURE, *WHY, "--yes", code=0)
    assert "NEW provider key" in result.err and "same provider key" not in result.err.split("What can settle")[0]
    assert "YOU OVERRIDE" in result.err and "may pay twice" in result.err
    kept = await desk.spine.one(
        "SELECT details FROM idem.evidence WHERE intent_id = %(i)s AND kind = 'resolved_failed'", i=intent
    )
    assert "may pay twice" in str(kept["details"]["overridden"])
    await desk.spine.work()
    assert desk.spine.effects() == 2, "it did happen, and the operator was warned"


@pytest.mark.parametrize("action", ["redrive", "resolve_failed"])
async def test_a_burned_key_is_not_left_behind_without_proof(desk: Desk, action: str) -> None:
    """A plain redrive, or the client's retry after `failed_retryable`, would send it under a new key."""
    intent, _ = await exhausted(desk)
    await desk.spine.all("UPDATE idem.outbox SET key_burned = true RETURNING 1")
    await desk.refuses("may pay twice", action, intent)
    await desk.act(action, intent, know_it_did_not_happen=True)


async def test_what_the_provider_does_not_recognise_is_not_sent_again(desk: Desk) -> None:
    intent = await desk.spine.sent("k", operation="pay.keyless", faults=["act_then_drop"])
    await desk.spine.advance(400)
    await desk.refuses(r"does not recognise a second call.*may pay twice", "redrive", intent)
    await desk.spine.work()
    assert desk.spine.effects() == 1


async def test_what_the_provider_has_forgotten_is_not_sent_again(desk: Desk) -> None:
    intent, _ = await exhausted(desk)
    await desk.spine.advance(86400)
    await desk.refuses(r"no longer remembers its key.*may pay twice", "redrive", intent)


async def test_a_word_is_no_proof_a_new_key_needs_one(desk: Desk) -> None:
    """`resolve --as failed_retryable` puts it at rest on somebody's word; a verdict of the reconciler's is a proof."""
    intent, _ = await exhausted(desk)
    await desk.act("resolve_failed", intent)
    assert await desk.state(intent) == ("failed_retryable", "held")
    await desk.refuses(r"nothing proves.*may pay twice", "redrive", intent, new_provider_key=True)
    await desk.act("redrive", intent)
    await desk.spine.work()
    assert desk.spine.effects() == 1


async def test_a_key_that_is_not_burned_is_kept(desk: Desk) -> None:
    spine = desk.spine
    intent = await spine.sent("k", operation="pay.keyless", faults=["drop_before_acting"])
    await spine.reconcile(after=400, times=2)
    assert await desk.state(intent) == ("failed_retryable", "held")
    await desk.refuses("is not burned", "redrive", intent, new_provider_key=True)
