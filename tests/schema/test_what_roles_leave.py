"""What the flows never change, no daemon's role changes; what they do change, it may."""

from typing import Any

import psycopg
import pytest
from psycopg import sql
from schema import shapes
from schema.databases import Installed
from schema.shapes import NOW, SOON, intent_columns, key_columns

Connection = psycopg.Connection[Any]
AT_WORK_OR_DONE = ("in_progress", "unknown", "failed_retryable", "completed")
LONG_AGO = sql.SQL("statement_timestamp() - interval '500 days'")
RESOLVED = {"resolved_at": NOW, "resolution": "completed", "resolved_by": "anna", "note": "n"}

OF_AN_INTENT = {
    "id": shapes.ROW, "tenant_id": "other", "operation": "other", "idempotency_key": "other", "provider": "other",
    "account": "other", "asked_by": "other", "approval": "undecided", "params": '{"amount": 2}', "plan": "[]",
    "created_at": LONG_AGO,
}  # fmt: skip
OF_ITS_END = {
    "outcome": "refused", "settled_at": LONG_AGO, "provider_reference": "pay_other", "result": '{"a": 1}',
    "interim": '{"a": 1}', "label": "other", "requested_at": LONG_AGO, "recovery_point": 2, "version": 9,
    "sent_as": 7,
}  # fmt: skip
OF_A_LETTER = {
    "id": shapes.INTENT, "intent_id": None, "webhook_event_id": shapes.ROW, "subject": "other", "reason": "too_late",
    "created_at": LONG_AGO,
}  # fmt: skip


@pytest.fixture
def daemon(rolled_back: Connection, pristine: Installed) -> str:
    return f"SET LOCAL ROLE {pristine.daemon}"


TERMS = {"expires_at": LONG_AGO, "created_at": LONG_AGO, "refuse_after_expiry": True}
STAYS = {
    "what an intent is about": ("intents", [intent_columns(state) for state in AT_WORK_OR_DONE], OF_AN_INTENT),
    "what a completed intent came to": ("intents", [intent_columns("completed")], OF_ITS_END),
    "the terms of a key": ("idempotency_keys", [key_columns(state) for state in (*AT_WORK_OR_DONE, "expired")], TERMS),
    "what a dead letter is about": ("dead_letters", [{"subject": "s"}], OF_A_LETTER),
    "what resolved a dead letter": (
        "dead_letters", [RESOLVED], dict.fromkeys(RESOLVED, "other") | {"resolved_at": LONG_AGO},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", STAYS)
def test_what_the_flows_never_change_stays(rolled_back: Connection, daemon: str, what: str) -> None:
    table, rows, others = STAYS[what]
    # A constraint of the table may speak first.
    refused = f"refuses this UPDATE of {table}|check constraint" + (
        "|permission denied" if others is OF_AN_INTENT else ""
    )
    for row in rows:
        with rolled_back.transaction(force_rollback=True):
            shapes.plant(rolled_back, *dict.fromkeys(("intents", table)), **{table: row})
            rolled_back.execute(daemon)
            failures = shapes.let_through(rolled_back, table, others, refused)
            assert not failures, (row, failures)


def test_what_the_provider_tells_later_is_written(rolled_back: Connection, daemon: str) -> None:
    shapes.plant(rolled_back, "intents", intents=intent_columns("completed"))
    rolled_back.execute(daemon)
    assert shapes.update(rolled_back, "intents", object_end="refused") == 1


def test_every_column_of_an_intent_is_told_apart(pristine: Installed) -> None:
    """A new column is either of the identity, or of the end, or may change later."""
    with psycopg.connect(pristine.superuser_url) as look:
        found = look.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'idem.intents'::regclass AND attnum > 0"
        )
        assert {name for (name,) in found} == {*OF_AN_INTENT, *OF_ITS_END, "state", "object_end"}


@pytest.mark.parametrize(
    ("table", "end", "column"),
    [("intents", intent_columns("completed"), "settled_at"), ("dead_letters", RESOLVED, "resolved_at")],
)
def test_what_ends_ends_by_the_clock_of_the_database(
    rolled_back: Connection, daemon: str, table: str, end: dict[str, Any], column: str
) -> None:
    shapes.plant(rolled_back, "intents", "dead_letters")
    rolled_back.execute(daemon)
    for when in (LONG_AGO, SOON):
        with pytest.raises(psycopg.errors.CheckViolation), rolled_back.transaction():
            shapes.update(rolled_back, table, **(end | {column: when}))
    assert shapes.update(rolled_back, table, **end) == 1


@pytest.mark.parametrize("state", ["completed", "failed_retryable"])
def test_a_key_expires_in_its_time_alone(rolled_back: Connection, daemon: str, state: str) -> None:
    for expires, may in ((SOON, False), (NOW, True)):
        with rolled_back.transaction(force_rollback=True):
            shapes.plant(rolled_back, "intents", "idempotency_keys",
                         idempotency_keys=key_columns(state) | {"expires_at": expires})  # fmt: skip
            rolled_back.execute(daemon)
            expired = key_columns("expired") | {"expires_at": SOON}
            if may:
                assert shapes.update(rolled_back, "idempotency_keys", **expired) == 1
                continue
            with pytest.raises(psycopg.errors.CheckViolation, match="refuses this UPDATE"):
                shapes.update(rolled_back, "idempotency_keys", **(expired | {"expires_at": LONG_AGO}))


@pytest.mark.parametrize("terms", [{"expires_at": SOON}, {"refuse_after_expiry": True}, {}])
def test_a_tombstone_goes_in_its_time_alone(rolled_back: Connection, daemon: str, terms: dict[str, Any]) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys", idempotency_keys=key_columns("expired") | terms)
    rolled_back.execute(daemon)
    delete = "DELETE FROM idem.idempotency_keys"
    if not terms:
        assert rolled_back.execute(delete).rowcount == 1
        return
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this DELETE"):
        rolled_back.execute(delete)


@pytest.mark.parametrize(("table", "column"), [("evidence", "at"), ("events", "created_at"),
                                               ("lane_changes", "changed_at")])  # fmt: skip
def test_history_has_the_time_of_its_statement(rolled_back: Connection, daemon: str, table: str, column: str) -> None:
    shapes.plant(rolled_back, "intents")
    rolled_back.execute(daemon)
    for when in (LONG_AGO, SOON):
        with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT"), rolled_back.transaction():
            shapes.insert(rolled_back, table, **{column: when})
    shapes.insert(rolled_back, table)
