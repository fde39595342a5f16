"""What each state of a key is answered with, what accept reads and writes of it, and what it never waits for."""

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from accept.shop import ANSWER, WRITTEN, Shop
from fix_sql import forced, query

from idem.decisions import Accepted, Expired, InProgress, Mismatch, NeedsOperator, Replay, Retrying, Unknown
from idem.errors import StoreUnavailable
from idem.outbox.domain.states import KeyState, OutboxStatus, Reason

# state, status, seconds left of a claim, decision without an open dead letter
PLACES: list[tuple[str, str | None, float | None, type[Any]]] = [
    ("in_progress", "pending", None, InProgress),
    ("in_progress", "waiting", None, InProgress),
    ("in_progress", "unfrozen", None, InProgress),
    ("in_progress", "approval", None, InProgress),
    ("in_progress", "claimed", 60, InProgress),
    ("in_progress", "claimed", -1, Unknown),
    ("in_progress", "awaiting", None, InProgress),
    ("in_progress", "awaiting", 60, InProgress),
    ("unknown", "unknown", None, Unknown),
    ("unknown", "unknown", 60, Unknown),
    ("failed_retryable", "held", None, Retrying),
    ("completed", None, None, Replay),
    ("expired", None, None, Expired),
]
PLACE = pytest.mark.parametrize("place", PLACES, ids=str)


def test_every_state_and_status_is_tried() -> None:
    assert {state for state, _, _, _ in PLACES} == set(KeyState)
    assert {status for _, status, _, _ in PLACES} - {None} == set(OutboxStatus)


def put(shop: Shop, state: str, status: str | None, claim: float | None = None, *letters: str) -> UUID:
    intent = shop.accepted().intent_id
    shop.put(intent, state, status, *letters, claim=claim)
    return intent


EVERYTHING = [*(f"idem.{table}" for table in WRITTEN), "idem.dead_letters", "idem.proofs"]


def contents(shop: Shop) -> dict[str, list[tuple[Any, ...]]]:
    """Every row with the transaction that wrote it, and with the one that locked it."""
    return {
        table: shop.rows(f"SELECT xmin::text, ctid::text, t.* FROM {table} t ORDER BY 3, 4") for table in EVERYTHING
    }


@PLACE
def test_the_decision_of_each_place(shop: Shop, place: Any) -> None:
    intent = put(shop, *place[:3])
    decision = shop.once()
    assert type(decision) is place[3]
    assert decision.intent_id == intent  # type: ignore[union-attr]
    if isinstance(decision, InProgress):
        assert decision.status == place[1]
    if isinstance(decision, InProgress | Unknown):
        assert decision.retry_after >= 1


@PLACE
def test_other_content_is_a_mismatch_in_every_place_and_writes_nothing(shop: Shop, place: Any) -> None:
    """IB-125."""
    intent = put(shop, *place[:3])
    before = contents(shop)
    assert shop.once(amount=101) == Mismatch(intent)
    assert contents(shop) == before


@PLACE
def test_hazard_22_accept_writes_no_row_with_a_claim_or_an_end(shop: Shop, place: Any) -> None:
    """Only a key at rest is written; not even an expired claim is, inside a caller's transaction."""
    put(shop, *place[:3])
    before = contents(shop)
    shop.once()
    assert (contents(shop) == before) is (place[3] is not Retrying)


@PLACE
def test_hazard_22_accept_waits_for_no_lock_of_a_daemon(shop: Shop, place: Any) -> None:
    """A settle in flight holds row, key and intent; a request hears of the committed state at once."""
    put(shop, *place[:3])
    with psycopg.connect(shop.url) as daemon:
        for table in ("outbox", "idempotency_keys", "intents"):
            daemon.execute(f"SELECT FROM idem.{table} FOR UPDATE")
        with shop.open() as connection:
            decision = shop.accept(connection)
    assert type(decision) is (InProgress if place[3] is Retrying else place[3])


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize(("state", "status"), [("failed_retryable", "held"), ("unknown", "unknown"),
                                               ("in_progress", "awaiting"), ("completed", None)])  # fmt: skip
def test_hazard_29_what_an_open_dead_letter_tells(shop: Shop, state: str, status: str | None, reason: Reason) -> None:
    intent = put(shop, state, status, None, reason)
    decision = shop.once()
    operators = {"rejected", "crashes_worker", "reconcile_exhausted", "not_settleable", "partial"}
    if state in ("failed_retryable", "unknown") and reason in operators:
        assert decision == NeedsOperator(intent, (reason,))
        assert shop.rows("SELECT resolution FROM idem.dead_letters") == [(None,)]
    else:
        usual = {"failed_retryable": Retrying, "unknown": Unknown, "in_progress": InProgress, "completed": Replay}
        assert type(decision) is usual[state]
        expected = "client_retry" if state == "failed_retryable" and reason in ("too_late", "unrenderable") else None
        assert shop.rows("SELECT resolution FROM idem.dead_letters") == [(expected,)]


def test_several_reasons_are_all_named(shop: Shop) -> None:
    intent = put(shop, "failed_retryable", "held", None, "too_late", "crashes_worker", "rejected", "conflict")
    assert shop.once() == NeedsOperator(intent, ("crashes_worker", "rejected"))


def test_a_resolved_dead_letter_blocks_nothing(shop: Shop) -> None:
    intent = put(shop, "failed_retryable", "held", None, "rejected")
    query(shop.url, "UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'anna'")
    assert shop.once() == Retrying(intent)


def test_a_retry_of_a_key_at_rest_puts_its_frozen_request_back_to_work(shop: Shop) -> None:
    """Hazards 6, 66: same row, same bytes, same provider key; nothing new but the wish."""
    intent = put(shop, "failed_retryable", "held", None)
    forced(
        shop.url,
        "UPDATE idem.outbox SET attempt = 3, redrives = 2, redrive_at = now() + interval '1 hour',"
        " start_before = now() - interval '1 hour';"
        "UPDATE idem.intents SET requested_at = now() - interval '1 day';"
        "UPDATE idem.idempotency_keys SET last_error_code = 'x', last_error_message = 'y'",
    )
    frozen = shop.rows("SELECT * FROM idem.requests")
    keep = "SELECT id, provider_key, attempt, redrives FROM idem.outbox"
    kept = shop.rows(keep)
    assert shop.once() == Retrying(intent)
    assert shop.rows(keep) == kept
    assert shop.rows("SELECT * FROM idem.requests") == frozen
    assert shop.rows(
        "SELECT status, redrive_at, available_at <= now(), start_before > now() + interval '1 hour' FROM idem.outbox"
    ) == [("pending", None, True, True)]
    assert shop.rows(
        "SELECT k.state, n.state, n.version, n.requested_at > now() - interval '1 hour', last_error_code"
        " FROM idem.idempotency_keys k JOIN idem.intents n ON n.id = k.intent_id"
    ) == [("in_progress", "in_progress", 2, True, None)]
    assert shop.rows("SELECT kind, from_state, to_state, from_status, to_status FROM idem.evidence ORDER BY id") == [
        ("accepted", None, "in_progress", None, "pending"),
        ("retried", "failed_retryable", "in_progress", "held", "pending"),
    ]
    assert isinstance(shop.once(), InProgress)


def test_a_retry_is_refused_while_a_proof_waits(shop: Shop) -> None:
    """What happened there is known already: the proof is applied, not sent against."""
    put(shop, "failed_retryable", "held", None)
    query(
        shop.url,
        "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome)"
        " SELECT id, intent_id, 'webhook', 'pending' FROM idem.outbox",
    )
    assert isinstance(shop.once(), InProgress)
    assert shop.rows("SELECT status FROM idem.outbox") == [("held",)]


def test_the_next_time_to_ask_comes_from_the_row(shop: Shop) -> None:
    put(shop, "in_progress", "claimed", 600)
    claimed = shop.once()
    assert isinstance(claimed, InProgress)
    assert claimed.retry_after == 5  # its lease is the latest end of a call, not the likely one
    forced(
        shop.url,
        "UPDATE idem.outbox SET claim_token = NULL, claimed_by = NULL, claimed_at = NULL, claimed_until = NULL,"
        " status = 'unknown', available_at = now() + interval '1 day';"
        "UPDATE idem.idempotency_keys SET state = 'unknown'",
    )
    unknown = shop.once()
    assert isinstance(unknown, Unknown)
    assert 86000 < unknown.retry_after <= 86400


def test_a_key_that_ought_to_be_expired_is_answered_until_it_is(shop: Shop) -> None:
    put(shop, "completed", None, None)
    query(shop.url, "UPDATE idem.idempotency_keys SET expires_at = now() - interval '1 day'")
    replay = shop.once()
    assert isinstance(replay, Replay) and replay.answer.body == ANSWER


def test_ib_132_keys_of_two_tenants_know_nothing_of_each_other(shop: Shop) -> None:
    first, second = shop.accepted(tenant="a"), shop.accepted(tenant="b")
    assert first.intent_id != second.intent_id
    shop.put(first.intent_id, "completed")
    assert isinstance(shop.once(tenant="a"), Replay)
    other = shop.once(tenant="b")
    assert isinstance(other, InProgress) and other.intent_id == second.intent_id


def test_ib_135_keys_of_two_operations_know_nothing_of_each_other(shop: Shop) -> None:
    for operation in ("pay.keyed", "ship.keyed"):
        shop.accepted(operation=operation)
    assert len(shop.rows("SELECT DISTINCT provider_key FROM idem.outbox")) == 2


SWEPT = """
CREATE FUNCTION public.reaped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.rounds') <= {rounds} THEN RETURN NULL; END IF;
    RETURN NEW;
END $$;
CREATE SEQUENCE public.rounds;
CREATE TRIGGER a_sweeper BEFORE INSERT ON idem.idempotency_keys FOR EACH ROW EXECUTE FUNCTION public.reaped();
"""


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_hazard_19_the_sweeper_between_insert_and_select(shop: Shop, rounds: int) -> None:
    """0 rows from INSERT and 0 rows from SELECT starts again; the third time it is a 503 that wrote nothing.

    The trigger stands for a winner whose key is deleted before the loser looks.
    """
    with psycopg.connect(shop.url, autocommit=True) as superuser:
        superuser.execute(SWEPT.format(rounds=rounds))  # type: ignore[call-overload]
        try:
            if rounds == 3:
                with pytest.raises(StoreUnavailable, match="nothing was sent"):
                    shop.once()
                assert set(shop.counts().values()) == {0}
            assert isinstance(shop.once(), Accepted)
            assert [shop.counts()[f"idem.{table}"] for table in WRITTEN] == [1] * len(WRITTEN)
        finally:
            superuser.execute("DROP FUNCTION public.reaped CASCADE")
            superuser.execute("DROP SEQUENCE public.rounds")


def test_what_is_stored_is_what_was_accepted(shop: Shop) -> None:
    decision = shop.accepted(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    (row,) = shop.rows(
        "SELECT o.status, o.attempt, o.provider, o.account, o.origin, o.replay_window, o.marks_start, o.traceparent,"
        "       o.provider_key = r.provider_key, r.method, r.path, r.body, n.params, n.operation, n.tenant_id,"
        "       n.idempotency_key, k.state, k.expires_at, o.first_sent_at"
        "  FROM idem.outbox o JOIN idem.requests r ON r.outbox_id = o.id JOIN idem.intents n ON n.id = o.intent_id"
        "  JOIN idem.idempotency_keys k ON k.intent_id = n.id"
    )
    assert row[:9] == (
        "pending", 0, "keyed", "keyed", "http://127.0.0.1:9", 86220, False,
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True,
    )  # fmt: skip
    assert row[9:11] == ("POST", "/payments")
    assert json.loads(row[11]) == {"amount": 100, "currency": "eur"}
    assert row[12:] == ({"amount": 100}, "pay.keyed", "t", "k", "in_progress", decision.expires_at, None)
