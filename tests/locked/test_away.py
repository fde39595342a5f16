"""Only a lost or useless connection counts as "the database is away"; what a server refuses is about one statement."""

from contextlib import suppress
from inspect import isclass

import psycopg
import pytest
from locked.sessions import terminate
from psycopg import errors

from idem.outbox.database.pool import AWAY, Database, Timeouts
from idem.outbox.database.server_errors import AWAY_CLASSES, AWAY_STATES, REFUSED, away

KNOWN = sorted(
    (each for each in vars(errors).values() if isclass(each) and issubclass(each, psycopg.Error) and each.sqlstate),
    key=lambda each: str(each.sqlstate),
)


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: f"{kind.sqlstate}")
def test_each_error_of_the_server_is_sorted(kind: type[psycopg.Error]) -> None:
    state = str(kind.sqlstate)
    of_the_connection = state in AWAY_STATES or state[:2] in AWAY_CLASSES
    assert (away(kind("x")) is not None) is of_the_connection
    assert not (of_the_connection and issubclass(kind, REFUSED))
    assert not issubclass(kind, AWAY), "caught as away, whatever the server says"


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("SET LOCAL lock_timeout = '50ms'; SELECT 1 FROM public.held FOR UPDATE", errors.LockNotAvailable),
        ("SET LOCAL statement_timeout = '50ms'; SELECT pg_sleep(5)", errors.QueryCanceled),
        ("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", errors.SerializationFailure),
        ("DO $$ BEGIN RAISE SQLSTATE '54001'; END $$", errors.StatementTooComplex),
        ("DO $$ BEGIN RAISE SQLSTATE '55000'; END $$", errors.ObjectNotInPrerequisiteState),
    ],
)
async def test_a_refused_statement_is_no_outage(db_url: str, statement: str, kind: type[psycopg.Error]) -> None:
    with psycopg.connect(db_url) as other:
        other.execute("CREATE TABLE public.held AS SELECT 1 AS one")
        other.commit()
        other.execute("SELECT one FROM public.held FOR UPDATE")
        database = Database(db_url, name="test", size=1)
        await database.open()
        with pytest.raises(kind) as raised:
            async with database.connection() as connection, connection.transaction():
                for part in statement.split("; ", 1) if statement.startswith("SET") else [statement]:
                    await connection.execute(part)
        assert not isinstance(raised.value, AWAY)
        async with database.connection() as connection:
            await connection.execute("SELECT 1")
        await database.close()


async def test_a_lost_connection_is_an_outage_wherever_it_is_lost(db_url: str, superuser_url: str) -> None:
    database = Database(db_url, name="test lost", size=1, timeouts=Timeouts(connect=5.0))
    await database.open()
    for inside in (False, True):
        with pytest.raises(AWAY):
            async with database.connection() as connection:
                pid = connection.info.backend_pid
                if inside:
                    async with connection.transaction():
                        terminate(superuser_url, pid)
                        await connection.execute("SELECT 1")
                else:
                    terminate(superuser_url, pid)
                    await connection.execute("SELECT 1")
    with pytest.raises(AWAY):
        async with database.connection() as connection:
            await connection.execute("SET default_transaction_read_only = on")
            await connection.execute("CREATE TABLE no_writes (one int)")
    with suppress(*AWAY):
        await database.close()
