"""What begins a call is written by functions of the owner alone, and no INSERT queues a call for what has its end."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from adopt.shop import CONFIG, define
from fix_accept import Acceptor
from fix_spine import catalogue
from fix_sql import engine_of, forced, query
from producers.application import synced
from schema import shapes
from schema.databases import Installed
from schema.shapes import CLAIM, INTENT, NOW, ROW, intent_columns, key_columns
from sqlalchemy.orm import Session

from idem import Answer
from idem.decisions import Accepted, InProgress, NeedsOperator, Retrying

Connection = psycopg.Connection[Any]
BEGINNINGS = ("intents", "idempotency_keys", "outbox")

MAY_WRITE = """
SELECT c.relname || ': ' || w.verb FROM pg_class c
 CROSS JOIN unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS w (verb)
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')
   AND (has_table_privilege(%(role)s, c.oid, w.verb)
        OR w.verb IN ('INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(%(role)s, c.oid, w.verb))
"""


def test_a_producer_writes_no_table(installed: Installed) -> None:
    assert query(installed.superuser_url, MAY_WRITE, {"role": installed.producer}) == []


def test_a_daemon_begins_nothing_by_itself(installed: Installed) -> None:
    found = {what for (what,) in query(installed.superuser_url, MAY_WRITE, {"role": installed.daemon})}
    assert len(found) > 20
    assert found & {f"{table}: INSERT" for table in BEGINNINGS} == set()
    assert not [what for what in found if what.endswith(("TRUNCATE", "REFERENCES", "TRIGGER"))]


FORGED = {
    "a second call": "INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, provider_key,"
    " status, operation, provider, account, origin) SELECT gen_random_uuid(), id, now(), now(), now(),"
    " gen_random_uuid(), 'pending', 'pay', 'p', 'a', 'o' FROM idem.intents",
    "an answer": "UPDATE idem.idempotency_keys SET state = 'completed', response_status = 200",
    "another answer": "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome) SELECT id, id, 'webhook',"
    " 'pending' FROM idem.intents",
    "evidence": "INSERT INTO idem.evidence (intent_id, source, kind) SELECT id, 'webhook', 'webhook' FROM idem.intents",
    "a completed intent": "INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, params, requested_at,"
    " state, outcome, settled_at) VALUES (gen_random_uuid(), 't', 'pay', 'k', '{}', now(), 'completed', 'succeeded',"
    " now())",
    "a key": "INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, intent_id,"
    " expires_at) VALUES ('t', 'pay', 'k2', 'v1:0', gen_random_uuid(), now())",
    "a request": "INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path,"
    " headers, body) SELECT id, id, id, 'p', 'a', 'POST', '/', '{}', '' FROM idem.intents",
    "a mark taken off": "UPDATE idem.idempotency_keys SET reserved = false",
    "a retry": "SELECT idem.client_retry(k, '1 h') FROM idem.idempotency_keys k",
    "a token": "INSERT INTO idem.api_tokens (token_sha256, tenant_id, label) VALUES (sha256('x'), 't', 'x')",
}


@pytest.mark.parametrize("what", FORGED)
def test_a_producer_forges_nothing(pristine: Installed, rolled_back: Connection, what: str) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys", intents=intent_columns("completed"),
                 idempotency_keys=key_columns("completed"))  # fmt: skip
    rolled_back.execute(f"SET LOCAL ROLE {pristine.producer}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rolled_back.execute(FORGED[what])


@pytest.mark.parametrize("state", ["completed", "failed_retryable", "unknown", "expired"])
@pytest.mark.parametrize("with_key", [True, False])
def test_no_call_is_queued_for_an_intent_that_is_not_in_progress(
    rolled_back: Connection, state: str, with_key: bool
) -> None:
    if state == "expired" and not with_key:
        state = "completed"
    planted = ["intents", "idempotency_keys"] if with_key else ["intents"]
    shapes.plant(rolled_back, *planted, idempotency_keys=key_columns(state),
                 intents=intent_columns("completed" if state == "expired" else state))  # fmt: skip
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT of outbox"):
        shapes.insert(rolled_back, "outbox")


@pytest.mark.parametrize(
    "past",
    [
        {"generation": 2},
        {"attempt": 1},
        {"inline": True, "status": "claimed", "attempt": 2, **CLAIM},
        {"status": "unfrozen", "key_burned": True},
    ],
)
def test_an_outbox_row_begins_with_nothing_sent(rolled_back: Connection, past: dict[str, Any]) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys")
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT") as caught:
        shapes.insert(rolled_back, "outbox", **past)
    assert caught.value.diag.message_detail == "an outbox row begins with nothing sent"


@pytest.mark.parametrize("outcome", ["succeeded", "cancelled", "local", "refused"])
def test_no_intent_begins_completed_beside_a_call_for_it(rolled_back: Connection, outcome: str) -> None:
    """In one statement too, whichever of its parts comes first."""
    end = {"state": "completed", "outcome": outcome, "settled_at": NOW}
    shapes.insert(rolled_back, "intents", **end)
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT"), rolled_back.transaction():
        shapes.insert(rolled_back, "outbox")
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT"), rolled_back.transaction():
        rolled_back.execute(
            "WITH row AS (INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since,"
            " provider_key, status, operation, provider, account, origin)"
            " VALUES (%(id)s, %(id)s, now(), now(), now(), %(id)s, 'pending', 'pay', 'p', 'a', 'o') RETURNING id)"
            " INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, params, requested_at, state,"
            " outcome, settled_at) SELECT id, 't', 'pay', 'k', '{}', now(), 'completed', %(outcome)s, now() FROM row",
            {"id": uuid4(), "outcome": outcome},
        )


@pytest.mark.parametrize("state", ["unknown", "failed_retryable"])
def test_no_intent_begins_at_rest(rolled_back: Connection, state: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT"):
        shapes.insert(rolled_back, "intents", state=state)


def test_evidence_names_who_wrote_it(rolled_back: Connection) -> None:
    shapes.plant(rolled_back, "intents")
    shapes.insert(rolled_back, "evidence")
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT of evidence"):
        shapes.insert(rolled_back, "evidence", id=uuid4(), token=uuid4(), database_role="somebody else")


@pytest.mark.parametrize("reason", ["rejected", "crashes_worker", "reconcile_exhausted", "not_settleable", "partial"])
@pytest.mark.parametrize("inline", [True, False])
def test_what_needs_a_person_is_not_taken_up_by_calling_the_function(
    rolled_back: Connection, reason: str, inline: bool
) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys", "outbox", "requests", "dead_letters",
                 intents=intent_columns("failed_retryable"), idempotency_keys=key_columns("failed_retryable"),
                 outbox={"status": "held", "inline": inline}, dead_letters={"reason": reason})  # fmt: skip
    call = "idem.client_retry(k, '1 h', gen_random_uuid(), 'me', '1 min')" if inline else "idem.client_retry(k, '1 h')"
    asked = f"SELECT {call} FROM idem.idempotency_keys k"
    assert rolled_back.execute(asked).fetchone() == (None,)
    rolled_back.execute("UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x'")
    assert rolled_back.execute(asked).fetchone() == (ROW,)
    assert rolled_back.execute("SELECT state FROM idem.intents WHERE id = %s", [INTENT]).fetchone() == ("in_progress",)


def test_a_producer_does_all_of_its_work_by_functions(installed: Installed, tmp_path: Path) -> None:
    """The library over a role that may write no table: accept, retry, reserve, submit, complete, refuse, SQL."""
    known = catalogue("http://127.0.0.1:9")
    synced(installed.url("daemon"), known)
    engine = engine_of(installed.url("producer"))
    acceptor = Acceptor(known.operations, known.providers)

    def accepted() -> Any:
        with engine.begin() as connection:
            return acceptor.accept(connection, "t", "pay.keyed", "k", {"amount": 1})

    assert isinstance(accepted(), Accepted)
    assert isinstance(accepted(), InProgress)
    forced(
        installed.superuser_url,
        "UPDATE idem.outbox SET status = 'held'; UPDATE idem.intents SET state = 'failed_retryable';"
        "UPDATE idem.idempotency_keys SET state = 'failed_retryable';"
        "INSERT INTO idem.dead_letters (intent_id, reason) SELECT id, 'rejected' FROM idem.intents",
    )
    assert isinstance(accepted(), NeedsOperator)
    query(
        installed.superuser_url, "UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x'"
    )
    assert isinstance(accepted(), Retrying)

    path = tmp_path / "idem.toml"
    path.write_text(CONFIG)
    idem, charge = define(path)
    note = idem.operation("notes.create", key_ttl="72h")
    for operation, end, given in (
        (charge, "submit", {"amount": 1, "currency": "eur"}),
        (charge, "refuse", Answer(422, {"no": 1})),
        (note, "complete", Answer(201, {"yes": 1})),
    ):
        for first in (True, False):
            call = operation.begin(key=end, tenant="t", body={"a": end})
            with Session(engine) as db, db.begin():
                assert call.reserve(db) is first
                if first:
                    getattr(call, end)(db, given)
            assert call.answer().status in (202, 409, 422, 201)
    assert query(installed.superuser_url, "SELECT count(*) FROM idem.intents")[0] == (4,)
