"""What is missing, invalid or switched off in the schema is noticed, whichever object it is."""

import os

import psycopg
import pytest
from doctor.conftest import Doctor
from fix_desk import Desk
from fix_sql import query

from idem.cli.doctor import objects


async def test_a_fresh_schema_is_in_order(doctor: Doctor) -> None:
    await doctor.finds("objects", "ok", "exist, valid and enabled")


async def test_an_index_that_a_broken_reindex_left_is_named(desk: Desk, doctor: Doctor) -> None:
    """A duplicate that came in while a unique index was built: the build fails, and leaves the index."""
    with psycopg.connect(desk.spine.url, autocommit=True) as connection:
        connection.execute("INSERT INTO idem.operations (name, provider, account, settings) VALUES"
                           " ('a', 'p', 'x', '{}'), ('b', 'p', 'x', '{}')")  # fmt: skip
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY one_ccnew ON idem.operations (provider)")
    (found,) = await doctor("objects")
    assert (found["level"], "one_ccnew" in found["what"], "DROP INDEX CONCURRENTLY" in found["do"]) == (
        "warning", True, True,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["index", "constraint", "trigger", "foreign key"])
async def test_each_object_that_is_not_in_force_is_an_error(desk: Desk, doctor: Doctor, kind: str) -> None:
    how = {
        "index": "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idem.outbox_due'::regclass",
        "constraint": "UPDATE pg_constraint SET convalidated = false WHERE oid = (SELECT oid FROM pg_constraint"
        " WHERE connamespace = 'idem'::regnamespace AND contype = 'c' LIMIT 1)",
        "trigger": "ALTER TABLE idem.evidence DISABLE TRIGGER evidence_is_kept",
        "foreign key": "ALTER TABLE idem.outbox DISABLE TRIGGER ALL",
    }
    with psycopg.connect(desk.spine.url, autocommit=True) as connection:
        if kind == "index":
            row = connection.execute(
                "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'idem.outbox'::regclass"
                " AND NOT indisprimary LIMIT 1"
            ).fetchone()
            assert row is not None
            how["index"] = how["index"].replace("idem.outbox_due", row[0])
        connection.execute(how[kind])  # type: ignore[call-overload]
    found = await doctor("objects")
    assert {each["level"] for each in found} == {"error"}
    assert any(f"the {kind} " in each["what"] for each in found), found


async def test_every_single_object_is_missed(desk: Desk) -> None:
    """Each is taken away in a transaction of its own, and doctor's own statement is asked there."""
    with psycopg.connect(desk.spine.url) as connection:
        made = connection.execute("SELECT o ->> 0, o ->> 1, o ->> 2 FROM jsonb_array_elements(idem.inventory()) o")
        listed = made.fetchall()
        assert connection.execute(objects.MISSING).fetchall() == []  # type: ignore[arg-type]
        connection.rollback()
        for kind, relation, name in listed:
            drop = {
                "table": f'ALTER TABLE idem."{relation}" RENAME TO taken_away',
                "column": f'ALTER TABLE idem."{relation}" RENAME COLUMN "{name}" TO taken_away',
                "index": f'ALTER INDEX idem."{name}" RENAME TO taken_away',
                "constraint": f'ALTER TABLE idem."{relation}" RENAME CONSTRAINT "{name}" TO taken_away',
                "trigger": f'DROP TRIGGER "{name}" ON idem."{relation}"',
                "function": "UPDATE pg_proc SET proname = 'taken_away' WHERE pronamespace = 'idem'::regnamespace"
                f" AND proname = '{name}' AND pronargs = (SELECT min(pronargs) FROM pg_proc WHERE proname = '{name}')",
            }[kind]
            connection.execute(drop)  # type: ignore[call-overload]
            if kind == "function":
                connection.execute("SELECT 1")
            missing = connection.execute(objects.MISSING).fetchall()  # type: ignore[arg-type]
            overloaded = kind == "function" and name == "accept"
            assert overloaded or (kind, relation, name) in missing, (kind, relation, name)
            connection.rollback()


async def test_the_inventory_is_what_the_upgrade_made(desk: Desk) -> None:
    """A part of an upgrade that makes something after the inventory would be missed by nothing."""
    row = query(
        desk.spine.url,
        """
        SELECT (SELECT count(*) FROM jsonb_array_elements(idem.inventory()) o WHERE o ->> 0 = 'index'),
               (SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'i'
                   AND c.relname NOT LIKE 'alembic%'),
               (SELECT count(*) FROM jsonb_array_elements(idem.inventory()) o WHERE o ->> 0 = 'trigger'),
               (SELECT count(*) FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
                 WHERE c.relnamespace = 'idem'::regnamespace AND NOT g.tgisinternal),
               (SELECT count(*) FROM jsonb_array_elements(idem.inventory()) o WHERE o ->> 0 = 'function'),
               (SELECT count(DISTINCT proname) FROM pg_proc WHERE pronamespace = 'idem'::regnamespace
                   AND proname <> 'inventory')
    """,
    )[0]
    assert row is not None and row[0::2] == row[1::2], row


@pytest.mark.parametrize(
    "taken",
    [
        "ALTER TABLE idem.evidence OWNER TO {role}",
        "ALTER FUNCTION idem.uuid7() OWNER TO {role}",
        "ALTER TYPE idem.decision OWNER TO {role}",
        "ALTER SCHEMA idem OWNER TO {role}",
        "GRANT CREATE ON SCHEMA idem TO {role}",
    ],
)
async def test_what_another_role_owns_in_the_schema_is_an_error(desk: Desk, doctor: Doctor, taken: str) -> None:
    role = f"idem_stranger_{os.getpid()}"
    with psycopg.connect(desk.spine.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} NOSUPERUSER")
        try:
            connection.execute(taken.replace("{role}", role))  # type: ignore[call-overload]
            (found,) = await doctor("objects")
            # A superuser may act as each role: what it has made in another's schema gives that role nothing more.
            wanted = "ok" if taken.startswith("ALTER SCHEMA") else "error"
            assert found["level"] == wanted and (wanted == "ok" or f"({role})" in found["what"]), found
        finally:
            connection.execute(f"REASSIGN OWNED BY {role} TO current_user")
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")
