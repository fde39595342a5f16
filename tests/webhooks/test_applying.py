"""What an event does to its call, by where that stands: each through the real endpoint."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fix_desk import Desk
from fix_sql import engine_of
from fix_webhooks import OTHERS, Hooks, event, signed
from sqlalchemy import Connection

from idem.decisions import Accepted, Decision, Retrying
from idem.errors import WebhookRefused
from idem.outbox.domain.contract import KeyRule, LookupRule
from idem.outbox.settle.answer_rendering import Renderer
from idem.outcomes import Ambiguous, NotExecuted, Pending, Refused, Succeeded
from idem.reconciler.webhooks.delivery import verified
from idem.reconciler.webhooks.ingest import ingest

DONE = ("completed", None)
WORKER, WEBHOOK = ("worker", "in_progress", "unknown"), ("webhook", "unknown", "completed")


@contextmanager
def callers_transaction(hooks: Hooks) -> Iterator[Connection]:
    """A client's own transaction, open for as long as it likes."""
    with engine_of(hooks.spine.url).begin() as connection:
        yield connection


def accept(hooks: Hooks, connection: Connection, key: str) -> Decision:
    return hooks.spine.acceptor.accept(connection, "t", "pay.keyed", key, {"amount": 100})


async def answer(hooks: Hooks, intent: UUID) -> tuple[int, dict[str, str]]:
    """The stored answer."""
    key = await hooks.spine.key(intent)
    return key["response_status"], json.loads(bytes(key["response_body"]))


async def test_an_unknown_call_is_settled_with_the_operations_own_answer(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    await hooks.tell(intent, "applied", stands=DONE)
    assert await answer(hooks, intent) == (201, {"intent": str(intent), "payment": "pay_1", "status": "succeeded"})
    assert await hooks.transitions(intent) == [WORKER, WEBHOOK]
    kept = await hooks.kept()
    assert (kept["intent_id"], kept["fate"], kept["retry_at"]) == (intent, "applied", None)
    seen = await hooks.spine.one(
        "SELECT details, provider_reference FROM idem.evidence WHERE intent_id = %(i)s AND source = 'webhook'", i=intent
    )
    assert (seen["details"]["event"], seen["provider_reference"]) == ("evt_1", "pay_1")


async def test_a_refusal_is_an_answer_too(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    assert await hooks.fate(event(await hooks.key(intent), "declined")) == "applied"
    assert (await answer(hooks, intent))[0] == 402


async def test_hazard_52_pending_is_a_proof_of_existence_whatever_the_state(hooks: Hooks) -> None:
    """A call at rest, and one that waits in the queue: neither is sent again."""
    held = await hooks.desk.held("k1")
    queued = await hooks.desk.after("k2", NotExecuted("transport"))
    assert await hooks.fate(event(await hooks.key(held), "processing", "pay_1"), "evt_1") == "applied"
    assert await hooks.fate(event(await hooks.key(queued), "processing", "pay_2"), "evt_2") == "applied"
    assert await hooks.desk.state(held) == await hooks.desk.state(queued) == ("in_progress", "awaiting")
    await hooks.spine.work(after=120)
    assert hooks.spine.effects() == 0
    await hooks.tell(held, "applied", "succeeded", "pay_1", stands=DONE, id="evt_3")


async def test_hazard_3_a_late_proof_settles_what_is_at_rest_or_queued(hooks: Hooks) -> None:
    """The attempt before was said not to have happened; the provider knows better."""
    held = await hooks.desk.held("k1")
    queued = await hooks.desk.after("k2", NotExecuted("transport"))
    assert await hooks.fate(event(await hooks.key(held), reference="pay_1"), "evt_1") == "applied"
    assert await hooks.fate(event(await hooks.key(queued), reference="pay_2"), "evt_2") == "applied"
    assert await hooks.desk.state(held) == await hooks.desk.state(queued) == DONE
    assert await hooks.spine.events(held) == ["rested", "corrected"]
    assert await hooks.spine.work() is not None
    assert hooks.spine.effects() == 0


@pytest.mark.parametrize("outcome", [Succeeded("pay_1"), Ambiguous(), NotExecuted("transport"), Pending("pay_1")])
async def test_hazard_3_an_early_event_is_folded_by_whoever_ends_the_claim(hooks: Hooks, outcome: Any) -> None:
    """The call is under way: the event is a stored proof, and needs no lock."""
    intent = await hooks.desk.pending("k")
    claimed = await hooks.desk.claim()
    await hooks.tell(intent, "stored", stands=("in_progress", "claimed"))
    await hooks.desk.settle(claimed, outcome)
    await hooks.expect(intent, DONE, proofs=0)
    assert (await hooks.kept())["retry_at"] is None


async def test_an_early_event_that_the_call_contradicts_leaves_it_unknown(hooks: Hooks) -> None:
    intent = await hooks.desk.pending("k")
    claimed = await hooks.desk.claim()
    assert await hooks.fate(event(await hooks.key(intent))) == "stored"
    await hooks.desk.settle(claimed, Refused("pay_1"))
    await hooks.expect(intent, ("unknown", "unknown"), letters=["conflict"])


async def test_hazard_53_a_proof_beside_a_locked_row_is_seen_by_the_claim(hooks: Hooks) -> None:
    """The client's own retry holds the row; the proof is stored beside it, and the worker that comes first sends
    nothing."""
    intent = await hooks.desk.after("k", NotExecuted("transport"))
    await hooks.spine.advance(100_000)
    await hooks.spine.execute(
        "UPDATE idem.outbox SET status = 'held'; UPDATE idem.intents SET state = 'failed_retryable';"
        "UPDATE idem.idempotency_keys SET state = 'failed_retryable', expires_at = now() + interval '1 day'"
    )
    with callers_transaction(hooks) as connection:
        assert isinstance(await asyncio.to_thread(accept, hooks, connection, "k"), Retrying)
        assert await hooks.fate(event(await hooks.key(intent))) == "stored"
    assert await hooks.desk.state(intent) == ("in_progress", "pending")
    await hooks.spine.work()
    assert hooks.spine.effects() == 0
    await hooks.spine.reconcile()
    assert await hooks.desk.state(intent) == DONE


async def test_hazard_57_an_event_about_a_step_that_is_done_is_only_compared(hooks: Hooks) -> None:
    """Neither a repetition nor an earlier status changes what was answered."""
    intent = await hooks.desk.unknown("k")
    key = await hooks.key(intent)
    assert await hooks.fate(event(key), "evt_1") == "applied"
    before = await answer(hooks, intent)
    assert await hooks.fate(event(key), "evt_2") == "agrees"
    assert await hooks.fate(event(key, "processing"), "evt_3") == "agrees"
    assert await answer(hooks, intent) == before
    assert await hooks.spine.letters(intent) == []


async def test_ib_112_a_later_contradiction_opens_a_conflict_and_changes_no_answer(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    key = await hooks.key(intent)
    await hooks.fate(event(key), "evt_1")
    before = await answer(hooks, intent)
    assert await hooks.fate(event(key, "declined"), "evt_2") == "conflict"
    assert await hooks.fate(event(key, reference="pay_2"), "evt_3") == "conflict"
    assert await answer(hooks, intent) == before
    assert await hooks.spine.letters(intent) == ["conflict", "possible_duplicate"]


@pytest.mark.parametrize("order", [("processing", "succeeded"), ("succeeded", "processing")])
async def test_ib_113_the_order_of_events_does_not_matter(hooks: Hooks, order: tuple[str, str]) -> None:
    """Both of the same second: nothing reads their times."""
    intent = await hooks.desk.unknown("k")
    for number, status in enumerate(order):
        content = event(await hooks.key(intent), status) | {"timestamp": "2026-11-28T10:00:00Z"}
        assert await hooks.fate(content, f"evt_{number}") in ("applied", "agrees")
    await hooks.expect(intent, DONE, letters=[])


async def test_hazard_18_another_accounts_secret_touches_nothing(hooks: Hooks) -> None:
    """A validly signed event that carries our key and our reference, from an account that is not the row's."""
    intent = await hooks.desk.awaiting("k")
    content = event(await hooks.key(intent), "declined", "pay_9")
    assert await hooks.fate(content, key=OTHERS) == "unmatched"
    await hooks.spine.reconcile()
    assert await hooks.desk.state(intent) == ("in_progress", "awaiting")
    assert (await hooks.kept())["account"] == "other"


@pytest.mark.parametrize("status", ["refunded", "requires_action", "", "SUCCEEDED"])
async def test_hazard_18_a_status_that_the_contract_does_not_list_settles_nothing(hooks: Hooks, status: str) -> None:
    """It is kept as evidence."""
    intent = await hooks.desk.unknown("k")
    await hooks.tell(intent, "noted", status, stands=("unknown", "unknown"))
    assert ("webhook", "webhook", None) in await hooks.spine.evidence(intent)


async def test_a_proof_needs_the_reference_that_the_contract_promises(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    content = event(await hooks.key(intent))
    del content["data"]["id"]
    assert await hooks.fate(content) == "noted"


async def test_matched_by_the_providers_reference_alone(hooks: Hooks) -> None:
    """What the provider has accepted is known by its reference; our key need not be in the event."""
    intent = await hooks.desk.awaiting("k")
    assert await hooks.fate(event(None, reference="pay_9")) == "applied"
    assert await hooks.desk.state(intent) == DONE


async def test_a_reference_that_two_calls_share_settles_neither(hooks: Hooks) -> None:
    first, second = await hooks.desk.awaiting("k1"), await hooks.desk.awaiting("k2")
    assert await hooks.fate(event(None, reference="pay_9"), "evt_1") == "unmatched"
    assert (await hooks.desk.state(first))[0] == (await hooks.desk.state(second))[0] == "in_progress"
    assert await hooks.fate(event(await hooks.key(second), reference="pay_9"), "evt_2") == "applied"


async def test_a_key_that_was_used_anew_after_its_end(hooks: Hooks) -> None:
    """The derived provider key is the same: the event's reference says which of the two is meant."""
    old = await hooks.desk.unknown("k")
    await hooks.fate(event(await hooks.key(old)), "evt_1")
    await hooks.spine.execute(
        "UPDATE idem.idempotency_keys SET state = 'expired', response_status = NULL, response_headers = NULL,"
        " response_body = NULL; DELETE FROM idem.idempotency_keys"
    )
    new = await hooks.desk.unknown("k")
    assert await hooks.key(new) == await hooks.key(old)
    assert await hooks.fate(event(await hooks.key(old)), "evt_2") == "agrees"
    assert await hooks.desk.state(new) == ("unknown", "unknown")
    await hooks.tell(new, "applied", reference="pay_2", stands=DONE, id="evt_3")


async def test_ib_110_an_event_before_the_commit_is_applied_within_a_tick(hooks: Hooks) -> None:
    """The client's transaction commits two seconds after the event came."""
    with callers_transaction(hooks) as connection:
        accepted = await asyncio.to_thread(accept, hooks, connection, "k")
        assert isinstance(accepted, Accepted)
        row = connection.exec_driver_sql("SELECT provider_key::text FROM idem.outbox").one()
        assert await hooks.fate(event(row[0])) == "unmatched"
        await asyncio.sleep(1.1)
        assert (await hooks.spine.reconcile()).events == 0
        await asyncio.sleep(1.1)
    # It is looked at again each second; a tick of the reconciler is one more.
    for _ in range(30):
        if (await hooks.spine.reconcile()).events:
            break
        await asyncio.sleep(0.1)
    assert await hooks.desk.state(accepted.intent_id) == DONE
    assert (await hooks.kept())["fate"] == "applied"
    await hooks.spine.work()
    assert hooks.spine.effects() == 0


async def test_hazard_31_an_unmatched_event_is_due_when_its_reference_is_written(hooks: Hooks) -> None:
    """Not by time alone: however long it has waited, and wherever the reference comes from."""
    assert await hooks.fate(event(None, reference="pay_9")) == "unmatched"
    await hooks.spine.execute(
        "UPDATE idem.webhook_events SET received_at = received_at - interval '2 days', retry_at = NULL"
    )
    assert (await hooks.spine.reconcile()).events == 0
    intent = await hooks.desk.awaiting("k")
    assert (await hooks.spine.reconcile()).events == 1
    assert await hooks.desk.state(intent) == DONE


async def test_an_unmatched_event_is_looked_at_less_and_less_often(hooks: Hooks) -> None:
    await hooks.fate(event(None))
    left = "SELECT extract(epoch FROM retry_at - statement_timestamp())::float8 AS left FROM idem.webhook_events"
    for age, least, most in ((0, 0, 1.1), (100, 24, 27), (80000, 3598, 3601), (86300, 99, 102)):
        assert least <= await looked_at(hooks, age, left) <= most
    assert (await hooks.kept())["fate"] == "unmatched"
    # Past its horizon it is nobody's here, as far as can be told: once more, then only with its reference.
    assert 86300 <= await looked_at(hooks, 90000, left) <= 86401
    assert (await hooks.kept())["fate"] == "foreign"
    assert await looked_at(hooks, 180000, left) is None


async def looked_at(hooks: Hooks, age: float, left: str) -> Any:
    """Let an event be so old, and the reconciler look at it."""
    await hooks.spine.execute(
        "UPDATE idem.webhook_events SET retry_at = statement_timestamp(),"
        " received_at = statement_timestamp() - make_interval(secs => %(age)s)",
        {"age": age},
    )
    assert (await hooks.spine.reconcile()).events == 0
    return (await hooks.spine.one(left))["left"]


BREAK = """
CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of order'; END $$;
CREATE TRIGGER fail BEFORE UPDATE ON idem.idempotency_keys FOR EACH ROW EXECUTE FUNCTION public.fail();
"""


async def test_hazard_31_what_cannot_be_applied_is_kept_and_tried_again(desk: Desk, hooks: Hooks) -> None:
    """Answered 2xx, visible to the claim, and a person is called after the third failure."""
    intent = await desk.unknown("k")
    await hooks.spine.execute(BREAK)
    assert await hooks.fate(event(await hooks.key(intent))) == "deferred"
    assert await hooks.fate(event(await hooks.key(intent))) == "duplicate"
    assert (await hooks.kept())["tries"] == 1
    assert len(await hooks.spine.all("SELECT 1 FROM idem.proofs")) == 1
    for tries in (2, 3):
        assert await desk.spine.letters(intent) == []
        await hooks.spine.execute("UPDATE idem.webhook_events SET retry_at = statement_timestamp()")
        assert (await hooks.spine.reconcile()).events == 0
        assert (await hooks.kept())["tries"] == tries
    assert await desk.spine.letters(intent) == ["event_failed"]
    await hooks.spine.execute("DROP TRIGGER fail ON idem.idempotency_keys")
    await hooks.spine.execute("UPDATE idem.webhook_events SET retry_at = statement_timestamp()")
    await hooks.spine.reconcile()
    await desk.spine.expect(intent, state="completed", status=None, letters=[], proofs=0)
    assert (await hooks.kept())["fate"] in ("applied", "agrees")
    assert (await hooks.transitions(intent)).count(WEBHOOK) == 1


async def test_where_only_events_can_settle_nobody_is_called_before_the_schedule_is_used_up(hooks: Hooks) -> None:
    """No replay and no look-up: an unknown call waits for its event."""
    spine = hooks.spine
    known, contract = spine.catalogue, spine.provider("keyed").contract
    contract = replace(contract, key=KeyRule(), lookup=LookupRule(), events_settle=True, schedule=(5, 30, 120))
    spine.change("keyed", contract=contract, lookups=())
    intent = await hooks.desk.after("k", Ambiguous())
    for _ in range(2):
        assert await spine.letters(intent) == []
        await spine.reconcile(after=200)
    await spine.reconcile(after=200)
    assert await spine.letters(intent) == ["reconcile_exhausted"]
    spine.catalogue = known  # the one of the endpoint, which has the same key
    await hooks.tell(intent, "applied", stands=DONE, letters=[])


async def test_the_same_ingestion_without_our_http(hooks: Hooks) -> None:
    """As a user's own endpoint calls it."""
    intent = await hooks.desk.unknown("k")
    body = json.dumps(event(await hooks.key(intent))).encode()
    headers = [(name.encode(), value.encode()) for name, value in signed(body, "evt_1").items()]
    catalogue, renderer = hooks.spine.catalogue, Renderer()
    (delivery,) = verified(catalogue, "keyed", None, headers, body, time.time())
    assert (delivery.account, delivery.event_id) == ("keyed", "evt_1")
    assert await ingest(hooks.spine.database, catalogue, renderer, delivery) == "applied"
    assert await ingest(hooks.spine.database, catalogue, renderer, delivery) == "duplicate"
    with pytest.raises(WebhookRefused):
        verified(catalogue, "keyed", None, headers, body + b" ", time.time())


async def test_an_operation_that_is_not_known_here_is_left_to_who_knows_it(hooks: Hooks) -> None:
    """No fallback takes the place of an answer that somebody else's code can give."""
    intent = await hooks.desk.unknown("k")
    operations: Any = hooks.spine.catalogue.operations
    operation = operations.pop("pay.keyed")
    await hooks.tell(intent, "deferred", stands=("unknown", "unknown"))
    operations["pay.keyed"] = operation
    await hooks.spine.execute("UPDATE idem.webhook_events SET retry_at = statement_timestamp()")
    await hooks.spine.reconcile()
    assert await answer(hooks, intent) == (201, {"intent": str(intent), "payment": "pay_1", "status": "succeeded"})
