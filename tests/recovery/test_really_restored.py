"""A server, or a database, that is really put back is noticed down to the last heartbeat, and a crash is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import psycopg
import pytest
from fix_accept import Acceptor
from fix_cluster import Server, own_server
from fix_restore import lossless, opened
from fix_spine import Spine, catalogue
from fix_sql import forced, query

from idem.migrations import runner
from idem.outbox.daemon.daemon import Life
from idem.outbox.database.pool import AWAY, Database, Timeouts
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.recovery.guard import Durability, Guard
from idem.outbox.values import clock
from idem.outbox.worker import claim


@pytest.fixture(scope="module")
def made() -> Iterator[Server]:
    with own_server() as server:
        yield server


@pytest.fixture
async def spine(made: Server) -> AsyncIterator[Spine]:
    """What accepts and looks at it, beside the daemon."""
    for table in ("doubts", "daemons", "evidence", "requests", "outbox", "idempotency_keys", "intents"):
        forced(made.url, f"DELETE FROM idem.{table}")
    known = catalogue("http://127.0.0.1:9")
    database = await opened(made.url)
    acceptor = Acceptor(known.operations, known.providers)
    spine = Spine(database, None, known, acceptor, made.url)  # type: ignore[arg-type]
    yield spine
    await spine.database.close()


class Daemon:
    """What a daemon does all the time: one connection, and heartbeats."""

    def __init__(self, spine: Spine, durability: Durability = "single") -> None:
        guard = Guard(spine.catalogue, durability)
        self.database = Database(
            spine.url, name="idem-daemon", size=2, timeouts=Timeouts(lock=10, connect=10), on_connect=guard
        )
        self.life = Life("worker")

    async def __aenter__(self) -> Daemon:
        await self.database.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.database.close()

    async def beat(self) -> None:
        """A heartbeat, on a connection that may be new."""
        until = asyncio.get_running_loop().time() + 60
        while True:
            try:
                async with self.database.connection() as connection:
                    beat = await self.life.beat(connection)
                    await self.database.beaten(connection, beat)
                    self.life.beats, self.life.table = beat.number, beat.table
                return
            except AWAY:
                assert asyncio.get_running_loop().time() < until


async def status(spine: Spine) -> str:
    return str(query(spine.url, "SELECT status FROM idem.outbox")[0][0])


@pytest.mark.parametrize("durability", ["single", "synchronous"])
@pytest.mark.parametrize("log", ["behind", "ahead"])
async def test_what_went_back_is_noticed(made: Server, spine: Spine, log: str, durability: Durability) -> None:
    """The connection of that heartbeat is older than the backup: what it saw of the log then is no help."""
    async with Daemon(spine, durability) as daemon:
        await daemon.beat()
        spine.accepted("a", operation="pay.keyless")
        made.backup()
        await daemon.beat()
        await daemon.beat()  # the only thing that is lost
        made.restore()
        if log == "ahead":
            # Others have written since, and the log has come farther than this daemon had seen it.
            with psycopg.connect(made.url, autocommit=True) as other:
                for _ in range(2):
                    other.execute("SELECT pg_switch_wal()")
                    other.execute("CREATE TABLE IF NOT EXISTS public.filler (one int)")
                    other.execute("INSERT INTO public.filler VALUES (1)")
        await daemon.beat()
        assert await status(spine) == "unknown"


async def test_a_backup_that_has_the_last_sign_of_life_lost_nothing(made: Server, spine: Spine) -> None:
    async with Daemon(spine) as daemon:
        await daemon.beat()
        spine.accepted("a", operation="pay.keyless")
        await daemon.beat()
        made.backup()
        made.restore()
        await daemon.beat()
        assert await status(spine) == "pending"


async def test_a_crash_of_the_server_is_not_taken_for_a_restore(made: Server, spine: Spine) -> None:
    """What was only written need not be there any more; it is not remembered."""
    async with Daemon(spine) as daemon:
        spine.accepted("a", operation="pay.keyless")
        with psycopg.connect(made.url, autocommit=True) as other:
            other.execute("SET synchronous_commit = off")
            for number in range(20):
                await daemon.beat()
                other.execute("CREATE TABLE IF NOT EXISTS public.written (one int)")
                other.execute("INSERT INTO public.written SELECT generate_series(1, 1000)")
                if number % 5 == 0:
                    await daemon.beat()
        made.crash()
        await daemon.beat()
        assert await status(spine) == "pending"


async def test_a_copy_in_place_of_a_database_is_noticed_whatever_was_said_before(made: Server, spine: Spine) -> None:
    """CREATE DATABASE ... TEMPLATE: the server was not started anew, and its log went on. `recovered_at` is older."""
    async with Daemon(spine) as daemon:
        await lossless(spine)
        await daemon.beat()
        spine.accepted("a", operation="pay.keyless")
        await spine.database.close()
        closed = (
            "ALTER DATABASE idem ALLOW_CONNECTIONS false",
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'idem'",
        )
        opened_again = "ALTER DATABASE idem ALLOW_CONNECTIONS true"
        with psycopg.connect(made.url.replace("/idem?", "/postgres?"), autocommit=True) as admin:
            for statement in (*closed, "CREATE DATABASE idem_kept TEMPLATE idem", opened_again):
                admin.execute(statement)
            await daemon.beat()
            for statement in (*closed, "DROP DATABASE idem", "ALTER DATABASE idem_kept RENAME TO idem", opened_again):
                admin.execute(statement)
        await daemon.beat()
        assert await status(spine) == "unknown"
        spine.database = await opened(made.url)


async def test_tables_that_were_put_back_under_a_connection_that_stays_are_noticed(made: Server, spine: Spine) -> None:
    """Emptied, and filled from a dump of the data: neither the server nor a table is another one."""
    async with Daemon(spine) as daemon:
        await daemon.beat()
        spine.accepted("a", operation="pay.keyless")
        with psycopg.connect(made.url) as other:
            other.execute("CREATE TEMPORARY TABLE dump AS SELECT * FROM idem.daemons")
            other.commit()
            await daemon.beat()
            other.execute("DELETE FROM idem.daemons")
            other.execute("INSERT INTO idem.daemons SELECT * FROM dump")
            other.commit()
        await daemon.beat()
        assert await status(spine) == "unknown"


KEPT = ("installation", "intents", "idempotency_keys", "outbox", "requests", "daemons")

WRITTEN = """
SELECT attname FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
"""The columns of a table but the generated ones, as pg_dump has them."""


def reload(made: Server) -> None:
    """The schema is dropped, made anew and filled, as `pg_restore --clean` does it, from tables of `public`."""
    query(made.url, "DROP SCHEMA idem CASCADE")
    runner.upgrade(made.url, environment="test")
    with psycopg.connect(made.url, autocommit=True) as own:
        own.execute("SET session_replication_role = replica")
        for table in KEPT:
            own.execute(f"DELETE FROM idem.{table}")  # type: ignore[arg-type]
            names = ", ".join(each for (each,) in own.execute(WRITTEN, [f"idem.{table}"]))
            own.execute(
                f"INSERT INTO idem.{table} ({names}) SELECT {names} FROM public.kept_{table}"  # type: ignore[arg-type]
            )


async def test_tables_that_were_made_anew_between_two_signs_of_life_are_noticed(made: Server, spine: Spine) -> None:
    """The backup is younger than the last heartbeat, and older than a send: nothing is sent before it is doubted."""
    name, _ = lane_scopes(spine.catalogue)["keyless", "keyless"]
    async with Daemon(spine) as daemon:
        await daemon.beat()

        async def sends() -> int:
            async with daemon.database.connection() as connection:
                rows = await claim.claim(
                    connection, name, token=uuid4(), holder=daemon.life.id, lease=30, limit=5, now=clock.boottime(),
                    beats=daemon.life.beats, table=daemon.life.table,
                )  # fmt: skip
            return len(rows)

        spine.accepted("a", operation="pay.keyless")
        with psycopg.connect(made.url, autocommit=True) as own:
            for table in KEPT:
                own.execute(f"CREATE TABLE public.kept_{table} AS SELECT * FROM idem.{table}")  # type: ignore[arg-type]
        assert await sends() == 1
        reload(made)
        assert await status(spine) == "pending"
        assert await sends() == 0
        await daemon.beat()
        assert await status(spine) == "unknown"
        spine.accepted("b", operation="pay.keyless")
        assert await sends() == 1, "and it goes on with the tables that are there now"
