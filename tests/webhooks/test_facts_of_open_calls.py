"""Attacks on later facts of calls that are open: questions without end, bodies that are gone, locks the other way."""

import asyncio

import pytest
from fix_webhooks import Hooks, event
from webhooks.refunds import again, knowing_refunds, made, told

from idem.errors import OperatorRefused
from idem.outbox.worker.freezing import Freezer
from idem.outcomes import NotExecuted, Succeeded


@pytest.fixture
async def hooks(hooks: Hooks) -> Hooks:
    """Signed events, sent to a real port, whose contract knows refunds."""
    return await knowing_refunds(hooks, fetch=False)


def asked(hooks: Hooks) -> int:
    """How many questions the provider was asked."""
    return len([each for each in hooks.spine.bank.log.requests if each.method == "GET"])


async def fates(hooks: Hooks, times: int) -> list[str]:
    """The event's fate after each of so many tries."""
    seen = []
    for _ in range(times):
        await again(hooks)
        seen.append(str((await hooks.kept())["fate"]))
    return seen


async def test_what_was_seen_during_a_live_claim_is_not_asked_for_again(hooks: Hooks) -> None:
    """It is stored, and speaks when the claim has ended; what came later is told after that."""
    intent, claimed = await hooks.desk.pending("k"), await hooks.desk.claim()
    key = await hooks.key(intent)
    reference = await made(hooks, key)
    assert await hooks.fate(event(key, "refunded", reference)) == "hint"
    assert await fates(hooks, 4) == ["early"] * 4
    assert asked(hooks) == 1
    await hooks.desk.settle(claimed, Succeeded(reference))
    assert (await fates(hooks, 2))[-1] == "later_fact"
    assert [kind for kind, _ in await told(hooks, intent)] == ["completed", "later_fact"]
    assert await hooks.spine.letters(intent) == []


async def test_what_ended_under_an_earlier_key_is_asked_for_once(hooks: Hooks) -> None:
    """Its object has failed there, which is no news; it stands in the way of nothing, and is told after the end."""
    spine, intent = hooks.spine, await hooks.desk.held("k")
    first = await hooks.key(intent)
    spine.bank.script(None, ["decline"])
    reference = await made(hooks, first)
    await spine.advance(300)
    await hooks.desk.act("redrive", intent, new_provider_key=True)
    await Freezer(spine.database, spine.catalogue).once()
    assert await hooks.fate(event(first, "refunded", reference)) == "hint"
    assert await fates(hooks, 4) == ["early"] * 4
    assert asked(hooks) == 1
    fetched = [each for each in await spine.evidence(intent) if each[1] == "fetched"]
    assert fetched == [("webhook", "fetched", "refused")]
    await spine.work()
    assert await hooks.desk.state(intent) == ("completed", None)
    assert await fates(hooks, 1) == ["later_fact"]
    assert [kind for kind, _ in await told(hooks, intent)] == ["rested", "completed", "later_fact"]


@pytest.mark.parametrize("body", [None, b"no JSON"])
async def test_a_refund_whose_body_is_gone_calls_somebody(hooks: Hooks, body: bytes | None) -> None:
    """That its call succeeded is found out; that it was refunded nobody would ever hear."""
    spine, intent = hooks.spine, await hooks.desk.pending("k")
    await hooks.desk.settle(await hooks.desk.claim(), NotExecuted("transport"))
    key = await hooks.key(intent)
    assert await hooks.fate(event(key, "refunded", await made(hooks, key))) == "hint"
    await spine.execute(
        "UPDATE idem.webhook_bodies SET body = %(b)s" if body else "DELETE FROM idem.webhook_bodies", b=body
    )
    await fates(hooks, 3)
    await hooks.expect(intent, ("completed", None), letters=["event_failed"])
    await hooks.desk.close(await hooks.desk.letter(intent, "event_failed"))
    assert await fates(hooks, 1) == ["noted"]
    assert await spine.letters(intent) == []


async def test_a_refund_whose_body_is_gone_is_never_unconfirmed(hooks: Hooks) -> None:
    """The provider shows nothing: then a person decides, and nothing is sent until then."""
    spine, intent = hooks.spine, await hooks.desk.pending("k")
    await hooks.desk.settle(await hooks.desk.claim(), NotExecuted("transport"))
    assert await hooks.fate(event(await hooks.key(intent), "refunded")) == "hint"
    await spine.execute("DELETE FROM idem.webhook_bodies")
    await spine.advance(120)
    assert await fates(hooks, 5) == ["hint"] * 5
    assert await spine.letters(intent) == ["event_failed"]
    await spine.work()
    assert spine.effects() == 0


async def test_whoever_closes_an_entry_waits_for_whoever_tries_its_event(hooks: Hooks) -> None:
    """Both go from the event to the entry: neither is ended as a deadlock."""
    spine, intent = hooks.spine, await hooks.desk.pending("k")
    hooks.spine.bank.script(None, ["pending:600"])
    await spine.work()
    assert await hooks.fate(event(await hooks.key(intent), "refunded")) == "early"
    await spine.execute("DELETE FROM idem.webhook_bodies")
    await again(hooks)
    letter = await hooks.desk.letter(intent, "event_failed")
    async with spine.database.connection() as connection, connection.transaction():
        await connection.execute("SELECT FROM idem.webhook_events FOR UPDATE")
        closing = asyncio.create_task(hooks.desk.close(letter))
        await asyncio.sleep(0.5)
        await connection.execute("UPDATE idem.dead_letters SET seen = seen + 1 WHERE id = %s", (letter,))
    with pytest.raises(OperatorRefused, match="changed after you read it"):
        await closing


async def test_whoever_is_sure_lets_a_queued_call_go_on(hooks: Hooks) -> None:
    """Nobody can confirm the refund of a call that waits for its next try: it is not queued for ever."""
    spine, intent = hooks.spine, await hooks.desk.pending("k")
    await hooks.desk.settle(await hooks.desk.claim(), NotExecuted("transport"))
    await hooks.desk.refuses("already queued or running", "redrive", intent, know_it_did_not_happen=True)
    assert await hooks.fate(event(await hooks.key(intent), "refunded")) == "hint"
    await spine.advance(120)
    assert await fates(hooks, 4) == ["hint"] * 4
    letter = await hooks.desk.letter(intent, "event_failed")
    wish = ("dlq", "redrive", letter, "--reason", "asked the bank", "--yes")
    refused = await hooks.desk.cli(*wish)
    assert refused.code != 0 and "unconfirmed event" in refused.err
    await hooks.desk.cli(*wish, "--i-know-it-did-not-happen", code=0)
    assert await hooks.desk.state(intent) == ("in_progress", "pending")
    assert await fates(hooks, 1) == ["noted"]
    await spine.work()
    await hooks.expect(intent, ("completed", None), letters=[], effects=1)


async def test_what_is_about_to_be_told_has_no_entry_that_would_give_it_up(hooks: Hooks) -> None:
    """A person has found out how the call ended; the refund that nobody could confirm is told after that."""
    spine, intent = hooks.spine, await hooks.desk.held("k")
    assert await hooks.fate(event(await hooks.key(intent), "refunded")) == "hint"
    await spine.advance(120)
    await fates(hooks, 4)
    assert await spine.letters(intent) == ["event_failed", "rejected"]
    await hooks.desk.act("resolve_completed", intent)
    assert await fates(hooks, 1) == ["early"]
    assert await spine.letters(intent) == []
    assert await fates(hooks, 1) == ["later_fact"]
    assert [kind for kind, _ in await told(hooks, intent)] == ["rested", "corrected", "later_fact"]
