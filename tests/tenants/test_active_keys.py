"""The count of active keys: what the sweeper takes off, moves on and counts anew, and that it is the truth."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_settings import with_constants
from fix_spine import Spine

from idem.outbox.config.settings import SweeperSettings
from idem.outbox.database.pool import Database
from idem.outbox.tenants import key_counts
from idem.sweeper import tenant_counts
from idem.sweeper.daemon import Sweeper

TRUTH = "SELECT count(*) FROM idem.idempotency_keys WHERE tenant_id = 't' AND state <> 'expired'"
MAKE = Path(__file__).with_name("active_keys_make.sql").read_text()


class Book:
    """Keys of tenants, made past the guards, and their counts."""

    def __init__(self, spine: Spine) -> None:
        self.spine, self.database = spine, spine.database
        self.sweeper = Sweeper(spine.database, spine.catalogue, with_constants(SweeperSettings(), batch=100))

    async def make(self, n: int, *, tenant: str = "t", key: str = "k", left: float = 3600, old: bool = False) -> None:
        """`old`: made long before anything was counted."""
        await self.spine.forced(MAKE, tenant=tenant, key=key, n=n, left=left, old=old)

    async def run(self, query: str, *values: Any) -> Any:
        async with self.database.connection() as connection:
            cursor = await connection.execute(query, values)  # type: ignore[arg-type]
            return (await cursor.fetchone() or [None])[0] if cursor.description else cursor.rowcount

    async def active(self, tenant: str = "t", most: int = 1_000_000) -> int | None:
        found = await self.spine.run(key_counts.active, {tenant: most})
        return found[tenant].keys if tenant in found else None

    async def true(self) -> bool:
        """Whether the count says what the table says."""
        return bool(await self.active() == await self.run(TRUTH))

    async def sweep(self) -> Any:
        return await self.sweeper.run_once()

    async def an_hour_later(self) -> None:
        await self.run("UPDATE idem.tenant_keys SET counted_at = counted_at - interval '61 minutes'")

    async def mark_back(self) -> None:
        """As if the mark stood since three minutes."""
        await self.run(
            "UPDATE idem.tenant_keys SET counted_to = idem.first_uuid7(statement_timestamp() - interval '3 minutes')"
        )


@pytest.fixture
def book(spine: Spine) -> Book:
    return Book(spine)


async def test_nobody_is_counted_for_whom_nobody_asks(book: Book) -> None:
    await book.make(5, left=-1)
    assert (await book.sweep()).expired == 5
    assert await book.run("SELECT count(*) FROM idem.tenant_keys") == 0


async def test_who_is_asked_about_is_counted_with_the_next_pass(book: Book) -> None:
    await book.make(40, old=True)
    await book.make(7, tenant="other", old=True)
    assert await book.active() is None
    await book.make(2, key="new")
    assert await book.active() == 2  # the old ones are not known yet
    await book.sweep()
    assert await book.active() == 42
    assert await book.run("SELECT array_agg(tenant_id) FROM idem.tenant_keys") == ["t"]


async def test_expiry_takes_off_in_its_own_transaction(book: Book) -> None:
    await book.make(250, old=True)
    await book.make(30, key="fresh")
    await book.active()
    await book.sweep()
    assert await book.active() == 280
    await book.run(
        "UPDATE idem.idempotency_keys SET expires_at = now() - interval '1 s' WHERE idempotency_key ~ '[05]$'"
    )
    assert (await book.sweep()).expired == 56
    assert await book.active() == 224
    assert await book.true()
    # Tombstones were taken off when they expired, and not again when they go.
    await book.run("UPDATE idem.idempotency_keys SET expires_at = now() - interval '1 s' WHERE state = 'expired'")
    assert (await book.sweep()).deleted == 56
    assert await book.true()


async def test_a_sweeper_that_is_refused_takes_nothing_off(book: Book, spine: Spine) -> None:
    await book.make(3, old=True)
    await book.active()
    await book.sweep()
    async with book.database.connection() as connection, connection.transaction(force_rollback=True):
        await tenant_counts.subtract(connection, {"t": 3})
    assert await book.active() == 3


async def test_a_key_that_expires_before_it_is_counted_in_is_counted_once(book: Book) -> None:
    await book.active()
    await book.sweep()
    await book.make(10, left=-1)
    await book.sweep()
    assert await book.run("SELECT active FROM idem.tenant_keys") == -10
    assert await book.active() == 0
    # Counted anew while they are still after the mark: the same.
    await book.an_hour_later()
    await book.sweep()
    assert await book.active() == 0
    await book.mark_back()
    assert await book.active() == 0


async def test_the_mark_moves_on_and_the_count_stays(book: Book) -> None:
    await book.active()
    await book.sweep()
    await book.make(20)
    await book.run("UPDATE idem.intents SET id = id")
    for _ in range(2):
        await book.mark_back()
        before = await book.run("SELECT counted_to::text FROM idem.tenant_keys")
        assert await book.active() == 20
        await book.sweep()
        assert await book.run("SELECT counted_to::text FROM idem.tenant_keys") > before
        assert await book.active() == 20


async def test_counting_anew_corrects_whatever_drifted(book: Book) -> None:
    await book.make(12, old=True)
    await book.active()
    await book.sweep()
    await book.run("UPDATE idem.tenant_keys SET active = 99")
    await book.sweep()
    assert await book.active() == 99
    await book.an_hour_later()
    await book.sweep()
    assert await book.active() == 12


async def test_what_expires_while_keys_are_counted_is_taken_off_the_new_count(book: Book, db_url: str) -> None:
    """The count holds the tenant's row: that tenant's keys expire with the next pass, and another's at once."""
    await book.make(50, old=True)
    await book.make(10, tenant="other", old=True)
    await book.active()
    await book.sweep()
    await book.run("UPDATE idem.idempotency_keys SET expires_at = now() WHERE idempotency_key ~ '0$'")
    await book.an_hour_later()
    with psycopg.connect(db_url) as counting:
        counting.execute(tenant_counts.DUE_COUNT, {"age": 3600.0})
        assert (await book.sweep()).expired == 1
        counting.execute(tenant_counts.COUNT_KEYS, {"lag": 60.0, "tenant": "t"})
    assert (await book.sweep()).expired == 5
    assert await book.active() == 45


async def test_sweepers_at_once_over_many_tenants_stay_true(book: Book, spine: Spine, database: Database) -> None:
    """Batches of different keys of the same tenants, taken off in the tenants' order: no deadlock, nothing lost."""
    names = [f"t{n}" for n in range(12)]
    for name in names:
        await book.make(60, tenant=name, old=True)
        await book.active(name)
    await book.sweep()
    await book.run("UPDATE idem.idempotency_keys SET expires_at = now() - random() * interval '1 s'"
                   " WHERE idempotency_key !~ '3$'")  # fmt: skip
    sweepers = [Sweeper(database, spine.catalogue, with_constants(SweeperSettings(), batch=17)) for _ in range(4)]
    done = [*await asyncio.gather(*(sweeper.run_once() for sweeper in sweepers)), await book.sweep()]
    # A tenant whose count another sweeper held just then was left to the next pass.
    assert sum(each.expired for each in done) == 12 * 54
    assert [await book.active(name) for name in names] == [6] * 12


async def test_a_count_reads_no_more_than_decides(book: Book) -> None:
    await book.active()
    await book.sweep()
    await book.make(500)
    assert await book.active(most=10) == 11
    assert await book.active(most=1000) == 500


async def test_a_tenant_that_nobody_asks_about_any_more_is_forgotten(book: Book) -> None:
    await book.active()
    await book.active("busy")
    await book.run("UPDATE idem.tenant_keys SET requested_at = now() - interval '25 hours'")
    assert await book.active("busy") == 0  # asked about again
    await book.sweep()
    assert await book.run("SELECT array_agg(tenant_id) FROM idem.tenant_keys") == ["busy"]
