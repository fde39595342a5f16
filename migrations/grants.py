"""What a daemon's and a producer's database role may do: text to read, to run by hand, or to apply by `runner.grant`.

No role of idem's programs owns a table, so none can switch a trigger off. Nobody may TRUNCATE, nobody may UPDATE
evidence, events or frozen requests; the DELETEs of retention are guarded row by row by triggers. There are no
sequences: ids are made by `idem.uuid7`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

Kind: TypeAlias = Literal["daemon", "producer"]
"""daemon: worker, sweeper, reconciler, HTTP API, operator's commands. producer: an application that only accepts."""

DAEMON: tuple[tuple[str, str], ...] = (
    ("SELECT", "alembic_version"),
    ("SELECT, UPDATE (system_identifier, timeline, database_name, changed_at)", "installation"),
    ("SELECT, INSERT, UPDATE", "operations"),
    ("SELECT, INSERT, UPDATE", "intents"),
    ("SELECT, INSERT, UPDATE, DELETE", "idempotency_keys"),
    ("SELECT, INSERT, UPDATE, DELETE", "outbox"),
    # Retention locks the rows that it deletes, and a row lock needs the right to UPDATE some column: the triggers
    # refuse every UPDATE of these three tables, this one too.
    ("SELECT, INSERT, UPDATE (intent_id), DELETE", "requests"),
    ("SELECT, INSERT, UPDATE (intent_id), DELETE", "evidence"),
    ("SELECT, INSERT, UPDATE (aggregateid), DELETE", "events"),
    ("SELECT, INSERT, UPDATE, DELETE", "proofs"),
    ("SELECT, INSERT, UPDATE, DELETE", "webhook_events"),
    ("SELECT, INSERT, UPDATE, DELETE", "webhook_bodies"),
    ("SELECT, INSERT, UPDATE", "dead_letters"),
    ("SELECT, INSERT, UPDATE, DELETE", "lanes"),
    ("SELECT, INSERT, UPDATE, DELETE", "daemons"),
    ("SELECT, INSERT, UPDATE", "api_tokens"),
    ("SELECT, INSERT, UPDATE, DELETE", "tenant_usage"),
    ("SELECT, INSERT, UPDATE, DELETE", "tenant_keys"),
    ("SELECT, INSERT, DELETE", "handled_events"),
)

# The columns that the client's own retry of a key at rest writes (idem.take_up_again), and no other.
PRODUCER: tuple[tuple[str, str], ...] = (
    ("SELECT", "installation"),
    ("SELECT", "proofs"),
    ("SELECT, INSERT, UPDATE (state, version, wanted_at)", "intents"),
    ("SELECT, INSERT, UPDATE (state, last_error_code, last_error_message)", "idempotency_keys"),
    ("SELECT, INSERT, UPDATE (status, status_since, redrive_at, available_at, start_before)", "outbox"),
    ("INSERT", "requests"),
    ("INSERT", "evidence"),
    ("SELECT, UPDATE (resolved_at, resolution, resolved_by, note)", "dead_letters"),
)


def statements(role: str, kind: Kind) -> list[str]:
    """The GRANTs of one role, to be run by the owner of the schema. Idempotent; the role must exist."""
    match kind:
        case "daemon":
            rights = DAEMON
        case "producer":
            rights = PRODUCER
        case _ as unlisted:
            assert_never(unlisted)
    name = quoted(role)
    return [
        f"GRANT USAGE ON SCHEMA idem TO {name}",
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idem TO {name}",
        *(f"GRANT {right} ON idem.{table} TO {name}" for right, table in rights),
    ]


def quoted(identifier: str) -> str:
    """An identifier in double quotes. Raises ValueError for one that PostgreSQL cannot hold."""
    if not identifier or "\0" in identifier:
        raise ValueError("the name of a role must not be empty or contain NUL")
    return '"' + identifier.replace('"', '""') + '"'
