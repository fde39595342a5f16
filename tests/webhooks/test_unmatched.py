"""Events that match nothing: kept, tried again, and in the end a dead letter, once, or counted as foreign."""

import json
from uuid import uuid4

from fix_webhooks import Hooks, event
from prometheus_client import REGISTRY
from webhooks.unmatched import DAYS, Change, given_up, grow_old, letters, like_ours

from idem.outbox.domain.contract import EventRule
from idem.outbox.operator import ages
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outcomes import NotExecuted

TAG = DeploymentTag(at="/deployment", key_at="/ours/key")


def foreign() -> float:
    value = REGISTRY.get_sample_value("idem_webhooks_foreign_total", {"provider": "keyed", "account": "keyed"})
    return value or 0.0


async def test_one_with_a_key_like_ours_becomes_a_dead_letter_once(hooks: Hooks) -> None:
    """After its horizon, not before; and never a second time, even after somebody has discarded it."""
    key = like_ours()
    assert await hooks.fate(event(key, reference="pay_of_nobody", card="4242424242424242")) == "unmatched"
    await given_up(hooks, 0.9)
    assert await letters(hooks) == []
    await given_up(hooks)
    (letter,) = await letters(hooks)
    details = letter["details"]
    assert (letter["reason"], letter["intent_id"]) == ("unmatched_webhook", None)
    assert (details["provider"], details["account"], details["event"]) == ("keyed", "keyed", "evt_1")
    assert (details["type"], details["reference"]) == ("payment.succeeded", "pay_of_nobody")
    assert details["provider_key"] == str(key)
    assert "/data/card" in details["members"]
    assert "42424242" not in json.dumps(details)
    await given_up(hooks, 3)
    assert len(await letters(hooks)) == 1
    shown = await hooks.desk.cli("dlq", "show", letter["id"], code=0)
    for text in ("keyed/keyed", "evt_1", "payment.succeeded", "pay_of_nobody", "redrive", "discard"):
        assert text in shown.out
    listed = await hooks.desk.cli("dlq", "list", "--provider", "keyed", "--json")
    assert [each["reason"] for each in listed.data["dead_letters"]] == ["unmatched_webhook"]
    refused = await hooks.desk.cli("dlq", "resolve", letter["id"], "--as", "closed", "--reason", "x", "--yes")
    assert refused.code != 0
    await hooks.desk.cli("dlq", "discard", letter["id"], "--reason", "a test of ours", "--yes", code=0)
    await given_up(hooks, 5)
    (letter,) = await letters(hooks)
    assert (letter["resolution"], letter["note"]) == ("discarded", "a test of ours")


async def test_a_match_that_comes_late_closes_it(hooks: Hooks) -> None:
    """Its call is restored, or accepted, after the horizon."""
    assert await hooks.fate(event(like_ours(), reference="pay_9")) == "unmatched"
    await given_up(hooks)
    assert len(await letters(hooks)) == 1
    intent = await hooks.desk.awaiting("k")
    await hooks.spine.reconcile()
    assert await hooks.desk.state(intent) == ("completed", None)
    (letter,) = await letters(hooks)
    assert letter["resolution"] == "webhook_applied"


async def test_redrive_tries_it_again_with_the_contract_as_it_is_now(hooks: Hooks) -> None:
    """The pointer to the key looked at the wrong place; it has been mended."""
    intent = await hooks.desk.after("k", NotExecuted("transport"))
    content = event(like_ours())
    content["data"]["right_key"] = await hooks.key(intent)
    assert await hooks.fate(content) == "unmatched"
    await given_up(hooks)
    (letter,) = await letters(hooks)
    await hooks.spine.execute("UPDATE idem.webhook_events SET retry_at = now() + interval '1 day'")
    keyed = hooks.spine.provider("keyed")
    hooks.spine.change("keyed", events=keyed.events.model_copy(update={"key": (("data", "right_key"),)}))
    assert (await hooks.spine.reconcile()).events == 0
    await hooks.desk.cli("dlq", "redrive", letter["id"], "--reason", "pointer mended", "--yes", code=0)
    assert (await hooks.spine.reconcile()).events == 1
    assert await hooks.desk.state(intent) == ("completed", None)
    (letter,) = await letters(hooks)
    assert letter["resolution"] == "webhook_applied"
    assert (letter["details"]["tried_by"], letter["details"]["tried_why"]) == ("grace", "pointer mended")


async def test_hazard_40_foreign_traffic_calls_nobody(hooks: Hooks, changed: Change) -> None:
    """Without a tag, a key of ours or an account of our own, idem cannot tell: it counts the event, and still tries."""
    await changed(EventRule(horizon=3600))
    before = foreign()
    assert await hooks.fate(event("order-17", reference="pay_9")) == "unmatched"
    assert await hooks.fate(event(None, reference="pay_8"), "evt_2") == "unmatched"
    await given_up(hooks)
    assert await letters(hooks) == []
    assert {(await hooks.kept("evt_1"))["fate"], (await hooks.kept("evt_2"))["fate"]} == {"foreign"}
    assert foreign() == before + 2
    await given_up(hooks, 3)
    assert (await hooks.kept())["retry_at"] is None
    assert foreign() == before + 2
    # And still its reference wakes it.
    intent = await hooks.desk.awaiting("k")
    assert (await hooks.spine.reconcile()).events == 1
    assert await hooks.desk.state(intent) == ("completed", None)


async def test_hazard_40_an_exclusive_account_has_no_foreign_events(hooks: Hooks, changed: Change) -> None:
    await changed(EventRule(horizon=3600), dedicated=True)
    assert await hooks.fate(event(None, reference="pay_9")) == "unmatched"
    await given_up(hooks, 0.1)
    assert [each["reason"] for each in await letters(hooks)] == ["unmatched_webhook"]


async def test_hazard_40_the_tag_decides_whose_it_is(hooks: Hooks, changed: Change) -> None:
    """Another deployment's events carry UUIDs too: its tag is not ours."""
    await changed(EventRule(horizon=3600), dedicated=True, tag=TAG)
    before = foreign()
    assert await hooks.fate(event(like_ours(), reference="pay_8", deployment="staging")) == "foreign"
    assert await hooks.fate(event(None, reference="pay_7", deployment="test"), "evt_2") == "unmatched"
    assert foreign() == before + 1
    await given_up(hooks)
    assert [each["details"]["event"] for each in await letters(hooks)] == ["evt_2"]
    assert foreign() == before + 1


async def test_the_key_beside_the_tag_matches_too(hooks: Hooks, changed: Change) -> None:
    await changed(tag=TAG)
    intent = await hooks.desk.unknown("k")
    content = event(None, deployment="test", ours={"key": await hooks.key(intent)})
    del content["data"]["idempotency_key"]
    assert await hooks.fate(content) == "applied"


async def test_without_a_horizon_it_is_never_a_dead_letter(hooks: Hooks, changed: Change) -> None:
    await changed(EventRule(horizon=None), dedicated=True)
    assert await hooks.fate(event(like_ours(), reference="pay_9")) == "unmatched"
    await given_up(hooks)
    assert await letters(hooks) == []
    assert (await hooks.kept())["fate"] == "foreign"


async def test_the_age_of_what_waits_is_a_metric(hooks: Hooks) -> None:
    assert await hooks.fate(event(like_ours(), reference="pay_9")) == "unmatched"
    await grow_old(hooks, 0.5)
    await hooks.spine.run(ages.report)
    assert REGISTRY.get_sample_value("idem_webhooks_unmatched") == 1
    assert (REGISTRY.get_sample_value("idem_webhooks_unmatched_oldest_seconds") or 0) > 0.4 * DAYS
    await given_up(hooks)
    await hooks.spine.run(ages.report)
    assert REGISTRY.get_sample_value("idem_webhooks_unmatched") == 0


async def test_retention_keeps_what_a_person_or_a_repetition_needs(hooks: Hooks, changed: Change) -> None:
    """An open letter's event with its body, and every event for as long as it may be sent again."""
    await changed(EventRule(redelivery=200 * DAYS))
    await hooks.fate(event(like_ours(), reference="pay_8"), "evt_1")
    await given_up(hooks)
    await hooks.fate(event(None, reference="pay_7"), "evt_2")
    await old_ids(hooks, 150)
    await hooks.spine.sweep()
    assert sorted(await hooks.spine.column("SELECT event_id FROM idem.webhook_events")) == ["evt_1", "evt_2"]
    await old_ids(hooks, 150)
    await hooks.spine.sweep()
    assert await hooks.spine.column("SELECT event_id FROM idem.webhook_events") == ["evt_1"]
    assert len(await hooks.spine.all("SELECT 1 FROM idem.webhook_bodies")) == 1


async def old_ids(hooks: Hooks, days: int) -> None:
    """Let days pass for events and bodies, whose ids are made of their time."""
    moved = (
        "SELECT id AS old, overlay(id::text PLACING left(idem.first_uuid7(received_at - %(d)s::interval)::text, 13)"
        " FROM 1 FOR 13)::uuid AS new FROM idem.webhook_events"
    )
    for statement in (
        f"CREATE TABLE public.moved AS {moved}",
        "UPDATE idem.webhook_bodies b SET webhook_event_id = m.new, received_at = received_at - %(d)s::interval"
        " FROM public.moved m WHERE m.old = b.webhook_event_id",
        "UPDATE idem.dead_letters d SET webhook_event_id = m.new FROM public.moved m WHERE m.old = d.webhook_event_id",
        "UPDATE idem.webhook_events w SET id = m.new, received_at = received_at - %(d)s::interval"
        " FROM public.moved m WHERE m.old = w.id",
        "DROP TABLE public.moved",
    ):
        await hooks.spine.execute(statement, d=f"{days} days")


async def test_hazard_40_a_random_key_of_another_program_calls_nobody(hooks: Hooks) -> None:
    """Some libraries make a UUID for each request: ours are of version 8."""
    assert await hooks.fate(event(uuid4(), reference="pay_of_others")) == "unmatched"
    await given_up(hooks)
    assert await letters(hooks) == []
