"""What is written once stays: answers, evidence, events, frozen requests, identities; for owner and daemon alike."""

from typing import Any

import psycopg
import pytest
from schema import shapes
from schema.databases import Installed
from schema.shapes import ANSWER, NOW, SOON, intent_columns, key_columns

Connection = psycopg.Connection[Any]
REFUSED = (psycopg.errors.CheckViolation, psycopg.errors.InsufficientPrivilege)
WHO = pytest.mark.parametrize("who", ["owner", "daemon"])
HISTORY = pytest.mark.parametrize("table", ["evidence", "events"])
LONG_AGO = "statement_timestamp() - interval '500 days'"
DONE = {"intents": intent_columns("completed")}


@pytest.fixture
def role(pristine: Installed, who: str) -> str:
    return str(getattr(pristine, who))


def become(connection: Connection, role: str) -> None:
    connection.execute(f"SET LOCAL ROLE {role}")


def old(table: str) -> dict[str, Any]:
    """A row of `table` that is past its retention."""
    return {{"evidence": "at", "events": "created_at"}[table]: psycopg.sql.SQL(LONG_AGO)}


@WHO
@pytest.mark.parametrize("column", [*ANSWER, "response_schema_version"])
def test_a_stored_answer_is_immutable(rolled_back: Connection, role: str, column: str) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys", idempotency_keys=key_columns("completed"))
    become(rolled_back, role)
    other = {"response_status": 200, "response_headers": '{"a": "b"}', "response_body": b"other",
             "completed_at": SOON, "response_schema_version": 2}  # fmt: skip
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        shapes.update(rolled_back, "idempotency_keys", **{column: other[column]})
    assert caught.value.diag.message_detail == "a stored answer is immutable"


@WHO
def test_an_answer_goes_whole_when_the_key_expires(rolled_back: Connection, role: str) -> None:
    """Hazard 19: expiry empties the answer; there is no other way to lose it, and none back."""
    shapes.plant(rolled_back, "intents", "idempotency_keys", idempotency_keys=key_columns("completed"))
    become(rolled_back, role)
    assert shapes.update(rolled_back, "idempotency_keys", **key_columns("expired")) == 1
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this UPDATE"):
        shapes.update(rolled_back, "idempotency_keys", **key_columns("completed"))


@WHO
@pytest.mark.parametrize("state", ["in_progress", "completed", "failed_retryable", "unknown", "expired"])
@pytest.mark.parametrize("column", ["tenant_id", "operation", "idempotency_key", "fingerprint", "intent_id"])
def test_a_key_keeps_its_scope_fingerprint_and_intent(
    rolled_back: Connection, role: str, state: str, column: str
) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys", idempotency_keys=key_columns(state))
    become(rolled_back, role)
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this UPDATE"):
        shapes.update(rolled_back, "idempotency_keys", **{column: shapes.ROW if column == "intent_id" else "other"})


@WHO
@HISTORY
@pytest.mark.parametrize("statement", ["UPDATE", "DELETE", "TRUNCATE"])
def test_hazard_37_history_is_append_only(
    rolled_back: Connection, role: str, who: str, table: str, statement: str
) -> None:
    shapes.plant(rolled_back, "intents", table, **DONE)
    become(rolled_back, role)
    text = {
        "UPDATE": f"UPDATE idem.{table} SET {'kind' if table == 'evidence' else 'type'} = 'corrected'",
        "DELETE": f"DELETE FROM idem.{table}",
        "TRUNCATE": f"TRUNCATE idem.{table}",
    }[statement]
    with pytest.raises(psycopg.Error) as caught:
        rolled_back.execute(text)
    # Whoever has no right to it is stopped before the trigger; the owner is stopped by the trigger.
    allowed = who == "owner" or statement == "DELETE"
    expected = psycopg.errors.CheckViolation if allowed else psycopg.errors.InsufficientPrivilege
    assert isinstance(caught.value, expected)


@WHO
@pytest.mark.parametrize(("table", "column"), [("evidence", "intent_id"), ("events", "aggregateid"),
                                               ("requests", "intent_id")])  # fmt: skip
def test_the_right_to_lock_history_is_no_right_to_change_it(
    rolled_back: Connection, role: str, table: str, column: str
) -> None:
    """Retention locks what it deletes, which takes a right to UPDATE one column: the trigger stands behind it."""
    shapes.plant(rolled_back, "intents", table)
    become(rolled_back, role)
    assert rolled_back.execute(f"SELECT 1 FROM idem.{table} FOR UPDATE").fetchall() == [(1,)]
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this UPDATE"):
        shapes.update(rolled_back, table, **{column: shapes.ROW})


@WHO
@HISTORY
def test_hazard_37_retention_may_delete_what_is_old_and_final(rolled_back: Connection, role: str, table: str) -> None:
    shapes.plant(rolled_back, "intents", table, **DONE, **{table: old(table)})
    become(rolled_back, role)
    assert rolled_back.execute(f"DELETE FROM idem.{table}").rowcount == 1


@WHO
@HISTORY
@pytest.mark.parametrize("why", ["young", "in_progress", "unknown", "failed_retryable", "open row", "open letter"])
def test_hazard_37_retention_may_not_delete_what_may_be_asked(
    rolled_back: Connection, role: str, table: str, why: str
) -> None:
    state = why if why in ("in_progress", "unknown", "failed_retryable") else "completed"
    tables = ["intents", table]
    rows = {"open row": "outbox", "failed_retryable": "outbox", "open letter": "dead_letters"}
    tables += [rows[why]] if why in rows else []
    changes = {} if why == "young" else {table: old(table)}
    changes |= {"outbox": shapes.row_columns("held")} if why == "failed_retryable" else {}
    shapes.plant(rolled_back, *tables, intents=intent_columns(state), **changes)
    become(rolled_back, role)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"refuses this DELETE of {table}"):
        rolled_back.execute(f"DELETE FROM idem.{table}")


@WHO
@HISTORY
def test_what_rests_without_a_row_is_final(rolled_back: Connection, role: str, table: str) -> None:
    """Its key has expired, and its row has left: nobody can take it up again."""
    shapes.plant(rolled_back, "intents", table, intents=intent_columns("failed_retryable"), **{table: old(table)})
    become(rolled_back, role)
    assert rolled_back.execute(f"DELETE FROM idem.{table}").rowcount == 1


@WHO
@pytest.mark.parametrize("age", ["young", "old"])
@pytest.mark.parametrize("what", ["open dead letter", "resolved dead letter", "change of a lane"])
def test_what_people_did_is_kept_as_long_as_evidence(rolled_back: Connection, role: str, what: str, age: str) -> None:
    at = psycopg.sql.SQL("now() - interval '500 days'") if age == "old" else NOW
    table = "lane_changes" if what == "change of a lane" else "dead_letters"
    ended = {"changed_at": at} if table == "lane_changes" else {"created_at": at}
    if what == "resolved dead letter":
        ended |= {"resolved_at": at, "resolution": "completed", "resolved_by": "anna"}
    shapes.plant(rolled_back, "intents", table, **{table: ended})
    become(rolled_back, role)
    if age == "old" and what != "open dead letter":
        assert rolled_back.execute(f"DELETE FROM idem.{table}").rowcount == 1
        return
    with pytest.raises(psycopg.errors.CheckViolation, match=f"refuses this DELETE of {table}"):
        rolled_back.execute(f"DELETE FROM idem.{table}")


@HISTORY
@pytest.mark.parametrize("who", ["owner", "daemon", "producer"])
@pytest.mark.parametrize(
    "key", ["session_replication_role = replica", "idem.reaper = 'on'", "idem.allow_delete = 'on'"]
)
def test_hazard_37_no_session_variable_opens_it(rolled_back: Connection, role: str, table: str, key: str) -> None:
    shapes.plant(rolled_back, "intents", table, **DONE)
    become(rolled_back, role)
    with pytest.raises(REFUSED):
        rolled_back.execute(f"SET LOCAL {key}")
        rolled_back.execute(f"DELETE FROM idem.{table}")


@pytest.mark.parametrize("who", ["daemon", "producer"])
@pytest.mark.parametrize("table", ["evidence", "events", "outbox", "idempotency_keys", "intents", "requests"])
def test_no_program_can_switch_a_trigger_off(rolled_back: Connection, role: str, table: str) -> None:
    become(rolled_back, role)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rolled_back.execute(f"ALTER TABLE idem.{table} DISABLE TRIGGER ALL")


@WHO
def test_a_shorter_retention_is_not_a_daemons_to_set(rolled_back: Connection, role: str, who: str) -> None:
    """The daemons may not open the guard by the back door of the installation's retention."""
    become(rolled_back, role)
    shorten = "UPDATE idem.installation SET evidence_retention = '0 s'"
    if who == "owner":
        rolled_back.execute(shorten)
    else:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            rolled_back.execute(shorten)


@WHO
@pytest.mark.parametrize("status", ["pending", "claimed", "unknown", "awaiting", "held"])
def test_hazard_6_attempt_and_quiet_time_never_go_down(rolled_back: Connection, role: str, status: str) -> None:
    columns = shapes.row_columns(status) | {"attempt": 3, "generation": 2, "quiet_after": SOON}
    shapes.plant(rolled_back, "intents", "outbox", outbox=columns)
    become(rolled_back, role)
    earlier = psycopg.sql.SQL("quiet_after - interval '1 microsecond'")
    other_key = {"provider_key": shapes.INTENT}
    for lower in ({"attempt": 2}, {"generation": 1}, {"quiet_after": earlier}, {"quiet_after": None}, other_key,
                  {"id": shapes.INTENT}, {"step": 2}, {"account": "b"}, {"origin": "x"}):  # fmt: skip
        with (
            # A constraint of the table may speak first.
            pytest.raises(psycopg.errors.CheckViolation, match=r"idem refuses this UPDATE of outbox|check constraint"),
            rolled_back.transaction(),
        ):
            shapes.update(rolled_back, "outbox", **lower)
    later = psycopg.sql.SQL("quiet_after + interval '1 microsecond'")
    assert shapes.update(rolled_back, "outbox", attempt=4, quiet_after=later) == 1


@WHO
def test_a_frozen_request_is_written_once(rolled_back: Connection, role: str) -> None:
    shapes.plant(rolled_back, "intents", "requests", **DONE)
    for column, value in {"body": b"other", "path": "/other", "headers": '{"a": "b"}', "method": "PUT"}.items():
        rolled_back.execute("SAVEPOINT before")
        become(rolled_back, role)
        with pytest.raises(REFUSED):
            shapes.update(rolled_back, "requests", **{column: value})
        rolled_back.execute("ROLLBACK TO SAVEPOINT before")
    become(rolled_back, role)
    assert rolled_back.execute("DELETE FROM idem.requests").rowcount == 1


@WHO
@pytest.mark.parametrize("status", ["pending", "claimed", "unknown", "awaiting", "held"])
def test_a_frozen_request_stays_as_long_as_its_row(rolled_back: Connection, role: str, status: str) -> None:
    """Deleted and written again is changed, too; and a claim of a row without bytes could only end by sweeps."""
    shapes.plant(rolled_back, "intents", "outbox", "requests", outbox=shapes.row_columns(status))
    become(rolled_back, role)
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this DELETE of requests"):
        rolled_back.execute("DELETE FROM idem.requests")


def test_what_is_refused_says_what_to_do(rolled_back: Connection) -> None:
    shapes.plant(rolled_back, "intents", "outbox", outbox={"attempt": 1})
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        shapes.update(rolled_back, "outbox", status="awaiting", attempt=0, first_sent_at=NOW)
    said = caught.value.diag
    assert said.message_primary == "idem refuses this UPDATE of outbox"
    assert said.message_detail
    assert "idem dlq" in (said.message_hint or "")
