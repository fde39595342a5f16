"""Events that are fetched before they are believed: the provider is asked, and what it shows is the proof."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fix_desk import Desk
from fix_spine import Spine
from fix_waiting import running, until
from fix_webhooks import READER, Hooks, event

from idem.decisions import Retrying
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.domain.contract import EventRule
from idem.outcomes import Ambiguous, NotExecuted, Outcome, Refused, Succeeded
from idem.reconciler.daemon import Reconciler

DONE = ("completed", None)
UNKNOWN_THEN_DONE = [("worker", "in_progress", "unknown"), ("webhook", "unknown", "completed")]


@pytest.fixture
async def fetching(hooks: Hooks) -> Hooks:
    """An endpoint whose provider `keyed` is asked before its events are believed."""
    await hooks.change(contract=replace(hooks.spine.provider("keyed").contract, event_rule=EventRule(fetch=True)))
    return hooks


async def due(spine: Spine) -> None:
    """Make the hints due now."""
    await spine.execute("UPDATE idem.webhook_events SET retry_at = statement_timestamp()")


async def test_what_the_provider_shows_is_the_proof(fetching: Hooks) -> None:
    """Nothing changes when the event comes; within a pass it is fetched, by its reference."""
    intent, reference = await fetching.lost()
    await fetching.tell(intent, "hint", reference=reference, stands=("unknown", "unknown"))
    assert (await fetching.spine.reconcile()).events == 1
    await fetching.expect(intent, DONE, fate="applied")
    assert await fetching.transitions(intent) == UNKNOWN_THEN_DONE
    seen = await fetching.spine.one(
        "SELECT kind, http_status, provider_reference, details FROM idem.evidence"
        " WHERE intent_id = %(i)s AND source = 'webhook'",
        i=intent,
    )
    assert (seen["kind"], seen["http_status"], seen["provider_reference"]) == ("fetched", 200, reference)
    assert seen["details"]["event"] == "evt_1"
    assert await fetching.spine.all("SELECT 1 FROM idem.proofs") == []


async def test_an_event_that_is_wrong_is_not_believed(fetching: Hooks) -> None:
    """It says that the card was declined; the provider shows a payment."""
    intent, reference = await fetching.lost()
    assert await fetching.fate(event(await fetching.key(intent), "declined", reference)) == "hint"
    await fetching.spine.reconcile()
    await fetching.expect(intent, DONE, answer=201, letters=[])


async def test_the_key_alone_is_enough_to_ask(fetching: Hooks) -> None:
    """The event names a reference of something else, or none that is known: the key finds the payment."""
    intent, _ = await fetching.lost()
    content = event(await fetching.key(intent))
    del content["data"]["id"]
    assert await fetching.fate(content) == "noted"  # it shows an object that is no end
    content = {"type": "payment.succeeded", "data": {"idempotency_key": await fetching.key(intent), "status": "?"}}
    assert await fetching.fate(content, "evt_2") == "noted"
    assert await fetching.desk.state(intent) == ("unknown", "unknown")


async def test_a_bare_event_is_worth_a_look(fetching: Hooks) -> None:
    """It shows no object at all: only that something has happened to it."""
    intent, reference = await fetching.lost()
    places = {"object": ("shown",), "key": (("about", "key"),), "reference": ("about", "id")}
    await fetching.change(events=READER.model_copy(update=places))
    about = {"key": await fetching.key(intent), "id": reference}
    assert await fetching.fate({"type": "payment.changed", "about": about}) == "hint"
    assert (await fetching.spine.reconcile()).events == 1
    assert await fetching.desk.state(intent) == DONE


async def test_hazard_53_a_hint_keeps_a_queued_call_from_being_sent(fetching: Hooks) -> None:
    """The earlier attempt was said not to have happened; the provider says otherwise, and is asked before any send."""
    intent = await fetching.desk.after("k", NotExecuted("transport"))
    key = await fetching.key(intent)
    assert await fetching.fate(event(key)) == "hint"
    await fetching.spine.work(after=120)
    await fetching.expect(intent, ("in_progress", "pending"), effects=0)
    # The provider has nothing: believed when the look-ups agree and the horizon has passed, and only then it is sent.
    await due(fetching.spine)
    await fetching.spine.reconcile()
    assert (await fetching.kept())["fate"] == "hint"
    await fetching.spine.work()
    assert fetching.spine.effects() == 0
    await due(fetching.spine)
    await fetching.spine.reconcile()
    assert (await fetching.kept())["fate"] == "unconfirmed"
    await fetching.spine.work()
    await fetching.expect(intent, DONE, effects=1)


async def test_hazard_53_a_hint_stands_against_retry_redrive_and_cancel(fetching: Hooks) -> None:
    intent = await fetching.desk.after("k", NotExecuted("request"))
    assert await fetching.fate(event(await fetching.key(intent))) == "hint"
    await fetching.spine.execute("UPDATE idem.dead_letters SET reason = 'too_late'")
    decided = await asyncio.to_thread(fetching.spine.accept, "k")
    assert not isinstance(decided, Retrying)
    for act in ("redrive", "cancel"):
        with pytest.raises(Exception, match=r"an unconfirmed event"):
            await fetching.desk.act(act, intent)
    assert await fetching.desk.state(intent) == ("failed_retryable", "held")


async def test_no_verdict_passes_a_hint(fetching: Hooks) -> None:
    """The look-ups find nothing, twice, after everything has passed: with a hint that is no proof of absence."""
    intent = await fetching.desk.unknown("k")
    assert await fetching.fate(event(await fetching.key(intent))) == "hint"
    for _ in range(3):
        await fetching.spine.execute("UPDATE idem.webhook_events SET retry_at = now() + interval '1 hour'")
        await fetching.spine.advance(100_000)
        await fetching.spine.execute("UPDATE idem.webhook_events SET retry_at = now() + interval '1 hour'")
        await fetching.spine.reconcile(hasten=True)
    assert await fetching.desk.state(intent) == ("unknown", "unknown")
    assert (await fetching.spine.row(intent))["lookups"] >= 2


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Succeeded("REF"), DONE),
        (Ambiguous(), ("unknown", "unknown")),
        (NotExecuted("transport"), ("in_progress", "pending")),
        (NotExecuted("request"), ("failed_retryable", "held")),
    ],
)
async def test_an_early_hint_lets_the_claim_end_as_it_ends(
    fetching: Hooks, outcome: Outcome, state: tuple[str, str | None]
) -> None:
    """It came while the call was under way: the result is written, and whatever comes of it waits for the fetch."""
    _, reference = await fetching.lost("other")
    if isinstance(outcome, Succeeded):
        outcome = Succeeded(reference)
    intent = await fetching.desk.pending("k")
    claimed = await fetching.desk.claim()
    assert await fetching.fate(event(await fetching.key(intent), reference=reference)) == "hint"
    await fetching.desk.settle(claimed, outcome)
    assert await fetching.desk.state(intent) == state
    sent = len(fetching.spine.bank.log.sends())
    await fetching.spine.work()
    assert len(fetching.spine.bank.log.sends()) == sent
    await fetching.spine.reconcile()
    await fetching.expect(intent, DONE, proofs=0)
    assert (await fetching.kept())["fate"] in ("applied", "agrees")


async def test_what_is_known_already_is_not_asked(fetching: Hooks) -> None:
    """Every payment has an event: one that says what its call was answered with costs the provider nothing."""
    spine = fetching.spine
    intent = await asyncio.to_thread(spine.accepted, "k")
    await spine.work()
    reference = spine.bank.log.payments()[-1].id
    asked = len(spine.bank.log.requests)
    assert await fetching.fate(event(await fetching.key(intent), reference=reference)) == "agrees"
    await spine.reconcile()
    assert len(spine.bank.log.requests) == asked
    # What it is asked about is held against the end, and changes no answer.
    assert await fetching.fate(event(await fetching.key(intent), "declined", reference), "evt_2") == "hint"
    await spine.reconcile()
    await fetching.expect(intent, fate="agrees", letters=[], id="evt_2")


async def test_a_contradiction_that_the_provider_confirms_is_a_conflict(fetching: Hooks) -> None:
    """Two payments for one call: the second is fetched, and somebody hears of it."""
    intent, reference = await fetching.lost()
    await fetching.fate(event(await fetching.key(intent), reference=reference))
    await fetching.spine.reconcile()
    _, second = await fetching.lost("other")
    assert await fetching.fate(event(await fetching.key(intent), reference=second), "evt_2") == "hint"
    await fetching.spine.reconcile()
    await fetching.expect(intent, fate="conflict", letters=["possible_duplicate"], id="evt_2")


async def test_an_outage_loses_no_hint_and_calls_nobody(fetching: Hooks) -> None:
    intent, reference = await fetching.lost()
    assert await fetching.fate(event(await fetching.key(intent), reference=reference)) == "hint"
    await fetching.spine.execute("UPDATE idem.outbox SET available_at = now() + interval '1 day'")
    port = fetching.spine.bank.port
    await fetching.spine.bank.stop()
    for _ in range(6):
        await due(fetching.spine)
        assert (await fetching.spine.reconcile()).events == 0
    kept = await fetching.kept()
    assert (kept["fate"], kept["tries"], kept["absences"]) == ("hint", 0, 0)
    assert kept["retry_at"] is not None
    assert await fetching.spine.all("SELECT 1 FROM idem.dead_letters") == []
    fetching.spine.bank._state.settings = replace(fetching.spine.bank.settings, port=port)
    await fetching.spine.bank.start()
    await due(fetching.spine)
    assert (await fetching.spine.reconcile()).events == 1
    assert await fetching.desk.state(intent) == DONE


async def test_an_object_that_no_rule_knows_calls_a_person_and_is_asked_on(desk: Desk, fetching: Hooks) -> None:
    """The provider answers, and would answer so for ever: the pointers or the rules are wrong."""
    intent, reference = await fetching.lost()
    spine = fetching.spine
    assert await fetching.fate(event(await fetching.key(intent), reference=reference)) == "hint"
    known = spine.catalogue
    spine.change("keyed", outcome=())
    await spine.execute("UPDATE idem.outbox SET available_at = now() + interval '1 day'")
    for _ in range(3):
        assert await spine.letters(intent) == []
        await due(spine)
        assert (await spine.reconcile()).events == 0
    assert await spine.letters(intent) == ["event_failed"]
    spine.catalogue = known
    await due(spine)
    assert (await spine.reconcile()).events == 1
    assert await desk.state(intent) == DONE
    assert await spine.letters(intent) == []


async def test_an_unmatched_event_that_finds_its_call_is_fetched_too(fetching: Hooks) -> None:
    spine = fetching.spine
    spine.bank.script(None, ["pending"])
    assert await fetching.fate(event(None, reference="pay_x")) == "unmatched"
    intent = await asyncio.to_thread(spine.accepted, "k")
    await spine.work()
    assert await fetching.desk.state(intent) == ("in_progress", "awaiting")
    reference = spine.bank.log.payments()[-1].id
    await spine.execute(
        "UPDATE idem.webhook_bodies SET body = convert_to(replace(convert_from(body, 'UTF8'), 'pay_x', %s), 'UTF8')",
        (reference,),
    )
    await due(spine)
    await spine.reconcile()
    kept = await fetching.kept()
    assert (kept["fate"], kept["intent_id"]) == ("applied", intent)
    assert await fetching.desk.state(intent) == ("in_progress", "awaiting")  # as it is there, whatever the event says


async def test_the_daemon_fetches_without_being_told(fetching: Hooks) -> None:
    intent, reference = await fetching.lost()
    spine = fetching.spine
    await spine.execute("UPDATE idem.outbox SET available_at = now() + interval '1 day'")
    settings = ReconcilerSettings(lease=30, interval=0.1)
    async with running(Reconciler(spine.database, spine.catalogue, settings, slots=2, margin=1)):
        assert await fetching.fate(event(await fetching.key(intent), reference=reference)) == "hint"
        await until(lambda: spine.all("SELECT FROM idem.intents WHERE state = 'completed'"))
    assert await fetching.desk.state(intent) == DONE


async def test_a_hint_whose_answer_cannot_be_rendered_stays(fetching: Hooks) -> None:
    """Its operation is unknown here: no lane asks about it, and nothing is lost."""
    intent, reference = await fetching.lost()
    operations: Any = fetching.spine.catalogue.operations
    kept = operations.pop("pay.keyed")
    assert await fetching.fate(event(await fetching.key(intent), reference=reference)) == "hint"
    assert (await fetching.spine.reconcile()).events == 0
    operations["pay.keyed"] = kept
    assert (await fetching.spine.reconcile()).events == 1
    assert await fetching.desk.state(intent) == DONE


async def test_refused_there_is_refused_here(fetching: Hooks) -> None:
    spine = fetching.spine
    spine.bank.script(None, ["decline"])
    intent = await asyncio.to_thread(spine.accepted, "k")
    claimed = await fetching.desk.claim()
    # The bank is told, and its answer is lost: the claim ends without a word of it.
    lane = Reconciler(spine.database, spine.catalogue, ReconcilerSettings(lease=30), slots=1, margin=1)
    outcome, _ = await lane.lanes[0].lane.send(claimed.row.id, claimed.request, lease_ends=claimed.lease_ends,
                                               start=lambda: True)  # fmt: skip
    await lane.close()
    assert isinstance(outcome, Refused)
    await fetching.desk.settle(claimed, Ambiguous())
    content = event(await fetching.key(intent), "declined", outcome.reference or "pay_1")
    assert await fetching.fate(content) == "hint"
    assert (await spine.reconcile()).events == 1
    await fetching.expect(intent, DONE, answer=402)
