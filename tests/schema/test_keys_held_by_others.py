"""A key's advisory lock is a hint: a role that holds it, without any right on idem, makes no accept say a lie."""

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from fix_spine import Spine
from producers.application import synced
from psycopg import sql
from psycopg.rows import namedtuple_row
from schema import shapes

Connection = psycopg.Connection[Any]
SEEN = """
SELECT (CAST(classid AS bigint) << 32) | CAST(objid AS bigint) FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 1
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
WAYS = {
    "accept": """
        SELECT d.* FROM idem.accept('t', 'pay.keyed', 'k', 'v1:1', '{"amount": 1}', NULL, 'p', 'a', 'https://p.test',
            %(own)s, 'POST', '/', '{}', 'body', '72 h', '15 min', 0, false, NULL) AS d""",
    "reserve": "SELECT d.* FROM idem.reserve('t', 'pay.keyed', 'k', 'v1:1', '72 h', '15 min', false) AS d",
    "begin_inline": """
        SELECT (b.decided).* FROM idem.begin_inline('t', 'pay.keyed', 'k', 'v1:1', '{"amount": 1}', NULL, 'p', 'a',
            'https://p.test', %(own)s, 'body', '72 h', '15 min', false, NULL, gen_random_uuid(), 'test',
            '1 min') AS b""",
    "sql": """SELECT d.* FROM idem.accept('t', 'pay.keyed', 'k', '{"amount": 1}') AS d""",
}
NEW = {"accept": "accepted", "reserve": "reserved", "begin_inline": "begun", "sql": "accepted"}


@pytest.fixture
def stranger(spine: Spine, superuser_url: str) -> Iterator[Connection]:
    """A session of a role that may connect, and nothing else."""
    role = f"idem_stranger_{os.getpid()}"
    with psycopg.connect(superuser_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} NOSUPERUSER").format(sql.Identifier(role)))
        with psycopg.connect(spine.url, autocommit=True) as connection:
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            yield connection
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def decide(connection: Connection, way: str) -> Any:
    cursor = connection.cursor(row_factory=namedtuple_row)
    own = shapes.derived(connection, "t", "pay.keyed", "k")
    return cursor.execute(WAYS[way], {"own": own}).fetchone()  # type: ignore[call-overload]


def hold(stranger: Connection, spine: Spine) -> None:
    """The stranger reads the number while an accept holds it, asks for it, and has it when that accept has ended."""
    with psycopg.connect(spine.url) as first:
        decide(first, "accept")
        [(number,)] = stranger.execute(SEEN).fetchall()
        first.rollback()
    assert stranger.execute("SELECT pg_try_advisory_lock(%s)", [number]).fetchone() == (True,)


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("way", WAYS)
def test_a_key_whose_lock_a_stranger_holds_is_made_all_the_same(
    spine: Spine, stranger: Connection, way: str, isolation: str
) -> None:
    synced(spine.url, spine.catalogue)
    hold(stranger, spine)
    with psycopg.connect(spine.url) as own:
        own.execute(sql.SQL("SET TRANSACTION ISOLATION LEVEL {}").format(sql.SQL(isolation)))
        own.execute("SET LOCAL lock_timeout = '7s'")
        assert decide(own, way).decision == NEW[way]
        # What was tried has left nothing behind in the caller's transaction.
        assert own.execute("SHOW lock_timeout").fetchone() == ("7s",)
        assert own.execute("SELECT count(*) FROM idem.idempotency_keys").fetchone() == (1,)
        if way == "reserve":
            own.rollback()
            return
        own.commit()
        assert decide(own, way).decision in ("in_progress", "mismatch")


@pytest.mark.parametrize("way", WAYS)
def test_of_two_at_once_the_second_is_told_what_is_so(spine: Spine, stranger: Connection, way: str) -> None:
    """With the stranger holding the lock: in progress while the first is open, made when the first has rolled back."""
    synced(spine.url, spine.catalogue)
    hold(stranger, spine)
    with psycopg.connect(spine.url) as first, psycopg.connect(spine.url) as second:
        assert decide(first, way).decision == NEW[way]
        told = decide(second, way)
        assert (told.decision, told.intent_id) == ("in_progress", None)
        # The transaction of the second goes on, and holds up nobody.
        assert second.execute("SELECT count(*) FROM idem.intents").fetchone() == (0,)
        first.rollback()
        assert decide(second, way).decision == NEW[way]
        second.rollback()


def test_constraints_that_the_caller_made_immediate_stay_so(spine: Spine, stranger: Connection) -> None:
    hold(stranger, spine)
    with psycopg.connect(spine.url) as own:
        own.execute("SET CONSTRAINTS ALL IMMEDIATE")
        assert decide(own, "accept").decision == "accepted"
        own.execute("SAVEPOINT before")
        with pytest.raises(psycopg.errors.CheckViolation):
            own.execute(
                "INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint,"
                " intent_id, expires_at, reserved) VALUES ('t', 'x', 'x', '', gen_random_uuid(), now(), true)"
            )
        own.rollback()


def test_a_lock_of_the_whole_table_is_no_key_in_progress(spine: Spine, stranger: Connection) -> None:
    hold(stranger, spine)
    with psycopg.connect(spine.url) as owner, psycopg.connect(spine.url) as own:
        owner.execute("LOCK TABLE idem.idempotency_keys IN SHARE MODE")
        own.execute("SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            decide(own, "accept")
