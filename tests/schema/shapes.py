"""Rows of every table as they may be, in plain SQL, so that a test changes one thing and sees who refuses it."""

import re
import uuid
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from idem.outbox.domain import keys
from idem.outbox.domain.states import KeyState, OutboxStatus

UNTRIGGERED = "SET LOCAL session_replication_role = replica"
"""A superuser's way around every trigger and foreign key, for rows that a test needs as they are."""
TRIGGERED = "SET LOCAL session_replication_role = origin"

NOW = sql.SQL("statement_timestamp()")
SOON = sql.SQL("statement_timestamp() + interval '1 hour'")
INTENT = uuid.UUID(int=1)
ROW = uuid.UUID(int=2)
ANSWER = {"response_status": 201, "response_headers": "{}", "response_body": b"{}", "completed_at": NOW}
NO_ANSWER = dict.fromkeys(ANSWER)
CLAIM = {"claim_token": uuid.UUID(int=3), "claimed_by": "w", "claimed_at": NOW, "claimed_until": SOON}
NO_CLAIM = dict.fromkeys(CLAIM)

ROWS: Mapping[str, Mapping[str, Any]] = {
    "installation": {
        "environment": "e", "secret": b"s" * 32, "system_identifier": 1, "timeline": 1, "database_name": "d",
        "database_oid": 1, "table_oid": 1,
    },
    "operations": {"name": "pay", "provider": "p", "account": "a"},
    "producers": {"role": "shop", "role_oid": 1, "tenant": "t"},
    "intents": {
        "id": INTENT, "tenant_id": "t", "operation": "pay", "idempotency_key": "k", "provider": "p", "account": "a",
        "params": "{}", "requested_at": NOW,
    },
    "idempotency_keys": {
        "tenant_id": "t", "operation": "pay", "idempotency_key": "k", "fingerprint": "v1:0", "intent_id": INTENT,
        "state": "in_progress", "expires_at": NOW,
    },
    "outbox": {
        "id": ROW, "intent_id": INTENT, "available_at": NOW, "start_before": SOON, "status_since": NOW,
        "provider_key": ROW, "status": "pending", "tenant_id": "t", "operation": "pay", "provider": "p", "account": "a",
        "origin": "o", "ordering_group": "pay", "ordering_key": "order 1", "ordering_number": 1,
    },
    "steps": {"intent_id": INTENT, "step": 1, "outbox_id": ROW, "name": "charge", "outcome": "succeeded"},
    "requests": {
        "outbox_id": ROW, "intent_id": INTENT, "provider_key": ROW, "provider": "p", "account": "a", "method": "POST",
        "path": "/", "headers": "{}", "body": b"{}",
    },
    "order_holds": {"tenant_id": "t", "ordering_group": "pay", "ordering_key": "order 1", "intent_id": INTENT,
                    "why": "refused"},
    "doubts": {"outbox_id": ROW, "details": "{}"},
    "proofs": {"id": ROW, "outbox_id": ROW, "intent_id": INTENT, "source": "webhook", "outcome": "pending"},
    "provider_answers": {"outbox_id": ROW, "outcome": "refused", "intent_id": INTENT, "attempt": 1},
    "evidence": {
        "intent_id": INTENT, "id": ROW, "outbox_id": ROW, "attempt": 1, "token": ROW, "source": "worker",
        "kind": "report",
    },
    "events": {"id": ROW, "aggregateid": INTENT, "number": 1, "type": "completed", "payload": "{}"},
    "webhook_events": {"id": ROW, "provider": "p", "account": "a", "event_id": "evt", "fate": "applied"},
    "webhook_bodies": {"webhook_event_id": ROW, "headers": "{}", "body": b"{}"},
    "dead_letters": {"id": ROW, "intent_id": INTENT, "reason": "conflict"},
    "lanes": {"provider": "p", "account": "a"},
    "lane_changes": {"id": ROW, "provider": "p", "account": "a", "what": "calls", "paused": True,
                     "changed_by": "anna", "reason": "r"},
    "account_identities": {"provider": "p", "account": "a", "origin": "o", "identity": "acct_1",
                           "seen_identity": "acct_1", "seen_by": "worker-1"},
    "daemons": {"id": "d", "kind": "worker", "host": "h", "pid": 1},
    "api_tokens": {"id": ROW, "token_sha256": b"h" * 32, "tenant_id": "t", "label": "l"},
    "handled_events": {"event_id": ROW, "handler": "h"},
    "event_handlers": {"name": "h", "operation": "pay"},
    "handler_work": {"handler": "h", "intent_id": INTENT, "number": 1, "event_id": ROW},
    "tenant_usage": {"tenant_id": "t", "hour": sql.SQL("now()")},
    "tenant_keys": {"tenant_id": "t"},
    "decisions_to_count": {"id": ROW, "tenant_id": "t", "operation": "pay", "decision": "accepted"},
}  # fmt: skip


def key_columns(state: KeyState | str) -> dict[str, Any]:
    """The columns that the CHECKs want of a key in this state."""
    answer = ANSWER if state == "completed" else NO_ANSWER
    return {"state": str(state)} | answer | ({"completed_at": NOW} if state in ("completed", "expired") else {})


def row_columns(status: OutboxStatus | str) -> dict[str, Any]:
    """The columns that the CHECKs want of an outbox row in this status."""
    claim = CLAIM if status == "claimed" else NO_CLAIM
    approval = {"approval": "wanted" if status == "approval" else None}
    return {"status": str(status), "first_sent_at": NOW if status == "claimed" else None} | approval | claim


def intent_columns(state: str) -> dict[str, Any]:
    """The columns that the CHECKs want of an intent in this state."""
    done = state == "completed"
    return {"state": state, "outcome": "succeeded" if done else None, "settled_at": NOW if done else None}


def _value(value: Any) -> sql.Composable:
    return value if isinstance(value, sql.Composable) else sql.Literal(value)


NOTHING = sql.SQL("")
LEAVES = sql.SQL("WITH gone AS (DELETE FROM idem.outbox RETURNING id) ")
"""In the same statement every row of the outbox leaves."""


def insert(connection: psycopg.Connection[Any], table: str, *, first: sql.SQL = NOTHING, **columns: Any) -> None:
    """INSERT the row of `ROWS`, with some columns otherwise. `first`: what stands before it in the statement."""
    row = {**ROWS[table], **columns}
    connection.execute(
        first
        + sql.SQL("INSERT INTO idem.{} ({}) SELECT {}" + " FROM gone" * bool(first.as_string())).format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join(map(_value, row.values())),
        )
    )


def update(connection: psycopg.Connection[Any], table: str, *, first: sql.SQL = NOTHING, **columns: Any) -> int:
    """UPDATE every row of a table; how many. `first`: what stands before it in the statement."""
    assignments = [sql.SQL("{} = {}").format(sql.Identifier(name), _value(v)) for name, v in columns.items()]
    done = connection.execute(
        first + sql.SQL("UPDATE idem.{} SET {}").format(sql.Identifier(table), sql.SQL(", ").join(assignments))
    )
    return done.rowcount


def let_through(connection: psycopg.Connection[Any], table: str, others: Mapping[str, Any], match: str) -> list[str]:
    """Columns that may be set so, and those whose refusal says something else; each is tried by itself."""
    failures = []
    for column, value in others.items():
        try:
            with connection.transaction(force_rollback=True):
                update(connection, table, **{column: value})
            failures.append(f"{column}: let through")
        except psycopg.Error as error:
            failures += [] if re.search(match, str(error)) else [f"{column}: {error}"]
    return failures


def derived(
    connection: psycopg.Connection[Any], tenant: str, operation: str, key: str, generation: int = 1
) -> uuid.UUID:
    """The provider key of a call, as the library derives it; of a new one without `generation`."""
    (secret,) = connection.execute("SELECT secret FROM idem.installation").fetchone() or (b"",)
    return keys.provider_key(bytes(secret), tenant, operation, key, 1, generation)


def plant(connection: psycopg.Connection[Any], *tables: str, **changes: Mapping[str, Any]) -> None:
    """Put a row into each of `tables`, past all triggers; `changes` by table."""
    connection.execute(UNTRIGGERED)
    for table in tables:
        insert(connection, table, **changes.get(table, {}))
    connection.execute(TRIGGERED)
