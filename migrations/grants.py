"""The rights of the database roles of idem's programs: SQL to read, to run by hand, or to apply with `runner.grant`.

No role of idem's programs owns a table, so none can switch a trigger off. No role may TRUNCATE, or UPDATE evidence,
events or frozen requests; triggers guard the DELETEs of retention row by row. There are no sequences: `idem.uuid7`
makes the ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

GrantKind: TypeAlias = Literal["daemon", "operator", "producer", "sql"]
"""daemon: worker, sweeper, reconciler, HTTP API, operator's commands, and applications with inline operations.
operator: the same, and the right to approve calls, which no program needs: for the role of a person's commands.
producer: an application with the library: accept, reserve, submit, complete. sql: a program in any language that calls
`idem.accept(tenant, operation, key, params)`, for the tenants in `idem.producers`, and sees no table."""

ALL = "SELECT, INSERT, UPDATE, DELETE"

DAEMON: Mapping[str, Sequence[str]] = {
    "SELECT": ("alembic_version", "producers"),
    "SELECT, UPDATE (system_identifier, timeline, database_name, database_oid, table_oid, changed_at, doubted_at, "
    "recovered_at, lost_at)": ("installation",),
    "SELECT, INSERT, UPDATE": ("operations", "api_tokens"),
    # Functions of the owner alone write new keys, intents and rows of the outbox (accept, reserve, submit, complete,
    # begin_inline): no role inserts what no accept has decided. All but what an intent is about: its scope, its
    # params, its provider and account.
    "SELECT, UPDATE (state, outcome, recovery_point, version, provider_reference, label, result, interim, object_end, "
    "requested_at, settled_at, sent_as, approval)": ("intents",),
    "SELECT, UPDATE, DELETE": ("idempotency_keys", "outbox"),
    # Retention locks the rows that it deletes, and a row lock needs the right to UPDATE some column: the triggers
    # refuse every UPDATE of these three tables, this one too.
    "SELECT, INSERT, UPDATE (intent_id), DELETE": ("requests", "evidence"),
    "SELECT, INSERT, UPDATE (aggregateid), DELETE": ("events",),
    # Written by the functions that decide. A lock of what is added up needs the right to UPDATE some column.
    "SELECT, UPDATE (at), DELETE": ("decisions_to_count",),
    "SELECT, INSERT, DELETE": ("lane_changes", "handled_events", "order_holds"),
    "SELECT, INSERT, UPDATE (object_end)": ("steps",),
    "SELECT, INSERT, UPDATE (seen_identity, seen_at, seen_by)": ("account_identities",),
    ALL: (
        "doubts", "proofs", "provider_answers", "webhook_events", "webhook_bodies", "dead_letters", "lanes", "daemons",
        "tenant_usage", "tenant_keys", "event_handlers", "handler_work",
    ),
}  # fmt: skip
"""Tables by the rights that a daemon has on them."""

# It writes by functions of the owner alone. It reads keys, answers and rows of every tenant, and the secret from which
# provider keys are derived: it is trusted with what its tenants ask for, not with what became of it.
PRODUCER: Mapping[str, Sequence[str]] = {
    "SELECT": ("installation", "intents", "idempotency_keys", "outbox", "dead_letters")
}
TABLES: Mapping[GrantKind, Mapping[str, Sequence[str]]] = {
    "daemon": DAEMON,
    "operator": DAEMON,
    "producer": PRODUCER,
    "sql": {},
}

ACCEPT_BY_SQL = "accept(text, text, text, json, boolean, text)"
ACCEPT = (
    "accept(text, text, text, text, jsonb, text, text, text, text, uuid, text, text, jsonb, bytea, interval, interval, "
    "integer, boolean, text, boolean, boolean, boolean, jsonb, text, text, boolean, text, text)"
)
CANONICAL: tuple[str, ...] = (
    "jcs", "jcs_value", "jcs_pointer", "jcs_number", "significant_digits", "utf16_sort_key", "refuse_params",
)  # fmt: skip
"""`idem.jcs`, which a program may call to see the canonical form, and what it calls itself. They read no table."""

_BY_LIBRARY = (ACCEPT, ACCEPT_BY_SQL, *CANONICAL, "reserve", "submit", "complete", "decide", "blocks_retry")
_OF_DAEMONS = (
    *_BY_LIBRARY, "begin_inline", "accept_under_key", "uuid7", "answer_problem", "refuse_answer", "inventory",
    "provider_key", "hmac_pad", "lane_capacity", "lane_capacity_locked", "first_uuid7", "forget_handler",
    "is_ahead", "earlier", "known_moment", "memory_age", "memory_left", "is_blocked", "leave_order", "enter_order",
    "step_ends", "begin_step", "ready_status", "refuse_row", "check_intent", "check_key",
    "check_row", "refuse_paused",
)  # fmt: skip
FUNCTIONS: dict[GrantKind, tuple[str, ...]] = {
    "sql": (ACCEPT_BY_SQL, *CANONICAL),
    "producer": _BY_LIBRARY,
    "daemon": _OF_DAEMONS,
    "operator": (*_OF_DAEMONS, "approve"),
}
"""What a role of each kind may call, by name; with its arguments where two functions have one name."""

NOT_EVERYBODY = "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA idem FROM PUBLIC"
"""PostgreSQL lets every role call a new function. The schema revokes that, and so does each grant."""


_CHECKED = """
DO $idem_role$
DECLARE
    given  oid := (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = {role});
    each   record;
BEGIN
    IF given IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object',
            MESSAGE = 'role ' || quote_ident({role}) || ' does not exist';
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_namespace n WHERE n.nspname = 'idem' AND n.nspowner = given)
       OR EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = 'idem' AND c.relowner = given) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_grant_operation',
            MESSAGE = 'it owns the schema or a table of it, so it may do everything, and without its rights foreign '
                || 'keys would not be checked. Give the program a role of its own';
    END IF;
    FOR each IN
        SELECT DISTINCT t.typname AS name FROM pg_catalog.pg_type t
          JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
         CROSS JOIN LATERAL pg_catalog.aclexplode(t.typacl) AS a
         WHERE n.nspname = 'idem' AND a.grantee = given
    LOOP
        EXECUTE format('REVOKE ALL ON TYPE idem.%I FROM %I CASCADE', each.name, {role});
    END LOOP;
END $idem_role$"""
"""Refuses a role that is not there, or whose rights are those of the owner; types have no REVOKE for a whole schema."""


def _nothing(role: str) -> list[str]:
    """Statements after which the role has no right on the schema, and neither has any role to which it granted one."""
    name = quoted(role)
    return [
        " ".join(_CHECKED.split()).replace("{role}", literal(role)),
        *(
            f"REVOKE ALL ON ALL {objects} IN SCHEMA idem FROM {name} CASCADE"
            for objects in ("TABLES", "SEQUENCES", "ROUTINES")
        ),
        f"REVOKE ALL ON SCHEMA idem FROM {name} CASCADE",
        # Rows of its number under an older name too.
        f"DELETE FROM idem.producers WHERE role = {literal(role)}"  # noqa: S608
        f" OR role_oid = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = {literal(role)})",
    ]


def statements(role: str, kind: GrantKind, tenants: Iterable[str] = ()) -> list[str]:
    """The REVOKEs and GRANTs after which a role has what its kind needs, and nothing that an earlier grant gave it.

    To be run in one transaction by the owner of the schema. Idempotent; the role must exist and own nothing of idem.
    `tenants` are those for which it may call `idem.accept` of SQL; `*` is every tenant. Raises ValueError.
    """
    name = quoted(role)
    if role in ("public", "none"):
        # PostgreSQL reads the first as every role, also in quotes.
        raise ValueError(f"{role} is not a role. Name the role of one program, and grant to each separately")
    produces = [
        "INSERT INTO idem.producers (role, role_oid, tenant)"  # noqa: S608
        f" SELECT r.rolname, r.oid, {literal(tenant)} FROM pg_catalog.pg_roles r WHERE r.rolname = {literal(role)}"
        " ON CONFLICT DO NOTHING"
        for tenant in tenants
    ]
    return [
        *_nothing(role),
        NOT_EVERYBODY,
        f"GRANT USAGE ON SCHEMA idem TO {name}",
        *(f"GRANT EXECUTE ON FUNCTION idem.{function} TO {name}" for function in FUNCTIONS[kind]),
        *(f"GRANT {right} ON idem.{each} TO {name}" for right, tables in TABLES[kind].items() for each in tables),
        *produces,
    ]


def quoted(identifier: str) -> str:
    """An identifier in double quotes. Raises ValueError for one that PostgreSQL cannot hold."""
    if not identifier or "\0" in identifier:
        raise ValueError("the name of a role must not be empty or contain NUL")
    return '"' + identifier.replace('"', '""') + '"'


def literal(value: str) -> str:
    """A text in single quotes. Raises ValueError for one that PostgreSQL cannot hold."""
    if not value or "\0" in value or "\\" in value:
        raise ValueError("a role and a tenant must not be empty or contain NUL or a backslash")
    return "'" + value.replace("'", "''") + "'"
