"""Waiting for the end: soon told, cheap for many, and never inside a transaction."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from adopt.proof_line import cuttable
from adopt.shop import ORDER, Charge, build, define
from adopt.working import work
from fix_sql import driven, engine_of
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from idem import AsyncCall, StoreUnavailable
from idem.testing.bank import Bank

PATH = f"/orders/{ORDER}/payment"
CHARGE = Charge(amount=100, currency="eur")
BOUND = 30.0
DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])


@dataclass
class Waiting:
    """An engine, and calls that are submitted."""

    charge: Any
    engine: AsyncEngine
    statements: int = 0

    async def submitted(self, *keys: str) -> list[AsyncCall]:
        calls: list[AsyncCall] = [self.charge.begin_async(key=key) for key in keys]
        async with AsyncSession(self.engine) as db, db.begin():
            for call in calls:
                assert await call.reserve(db)
                await call.submit(db, CHARGE)
        return calls


def waiting(charge: Any, url: str, driver: str, **options: Any) -> Waiting:
    made = Waiting(charge, create_async_engine(driven(url, driver), **options))

    def counted(*_: Any) -> None:
        made.statements += 1

    event.listen(made.engine.sync_engine, "before_cursor_execute", counted)
    return made


@pytest.fixture(params=["psycopg", "asyncpg"])
async def many(request: pytest.FixtureRequest, db_url: str, idem_toml: Path) -> AsyncIterator[Waiting]:
    made = waiting(define(idem_toml)[1], db_url, request.param)
    yield made
    await made.engine.dispose()


@DRIVERS
async def test_who_waits_is_told_soon_after_settling(shop_url: str, idem_toml: Path, bank: Bank, driver: str) -> None:
    idem, charge = define(idem_toml)
    app = build(charge, shop_url, driver=driver)
    headers = {"Idempotency-Key": "k1"}
    with idem.pointed_at("ledger", bank.url):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            began = time.monotonic()
            told = await client.post(PATH, params={"wait": 60}, headers=headers | {"Prefer": "wait=1"})
            assert (told.status_code, told.headers["preference-applied"]) == (202, "wait=1")
            told = await client.post(PATH, params={"wait": 0}, headers={"Idempotency-Key": "k2", "Prefer": "wait=100"})
            assert told.status_code == 202
            assert time.monotonic() - began < BOUND
            first = asyncio.create_task(client.post(PATH, params={"wait": 90}, headers={"Idempotency-Key": "k3"}))
            repeated = asyncio.create_task(client.post(PATH, params={"wait": 60}, headers=headers))
            while not (repeated.done() and first.done()):
                await work(idem, shop_url)
                await asyncio.sleep(0.1)
                assert time.monotonic() - began < BOUND
            assert {(await each).status_code for each in (first, repeated)} == {201}
            assert "idempotent-replayed" not in (await first).headers
            assert (await repeated).headers["idempotent-replayed"] == "true"
            assert time.monotonic() - began < BOUND
    await app.state.engine.dispose()


@pytest.mark.sample(2)
async def test_three_hundred_who_wait_cost_few_statements_and_no_connection(many: Waiting) -> None:
    calls = await many.submitted(*(f"k{n}" for n in range(300)))
    before = many.statements
    asked = [asyncio.create_task(call.answer(wait=2)) for call in calls]
    await asyncio.sleep(0.5)
    assert many.engine.sync_engine.pool.checkedout() <= 1  # type: ignore[attr-defined]
    assert {(await each).status for each in asked} == {202}
    assert 3 <= many.statements - before <= 60


async def test_nobody_waits_inside_a_transaction(many: Waiting, db_url: str) -> None:
    (first,) = await many.submitted("k1")
    second = many.charge.begin_async(key="k1")
    async with AsyncSession(many.engine) as db:
        await db.begin()
        assert not await second.reserve(db)
        # It is told at once, how long it would wait otherwise: the transaction is open.
        assert (await asyncio.wait_for(second.answer(wait=600), BOUND)).status == 409
        await db.commit()
    asked = asyncio.create_task(second.answer(wait=3))
    with psycopg.connect(db_url, autocommit=True) as own:
        for _ in range(20):
            await asyncio.sleep(0.05)
            oldest = own.execute(
                "SELECT max(clock_timestamp() - xact_start) FROM pg_stat_activity WHERE state = 'idle in transaction'"
                " AND datname = current_database()"
            ).fetchone()
            assert oldest is not None
            assert oldest[0] is None or oldest[0].total_seconds() < 0.5
    assert (await asked).status == 409
    assert (await first.answer()).status == 202


async def test_who_has_gone_costs_nothing_any_more(many: Waiting) -> None:
    calls = await many.submitted("k1", "k2")
    asked = [asyncio.create_task(call.answer(wait=600)) for call in calls]
    await asyncio.sleep(0.3)
    for task in asked:
        task.cancel()
    await asyncio.wait(asked)
    await asyncio.sleep(0.5)
    before = many.statements
    await asyncio.sleep(1)
    assert many.statements == before
    assert (await calls[0].answer(wait=0.2)).status == 202


@DRIVERS
async def test_a_pool_of_one_that_its_caller_keeps_is_enough(db_url: str, idem_toml: Path, driver: str) -> None:
    made = waiting(define(idem_toml)[1], db_url, driver, pool_size=1, max_overflow=0, pool_timeout=3)
    call = made.charge.begin_async(key="k1")
    async with made.engine.connect() as db:
        async with db.begin():
            assert await call.reserve(db)
            await call.submit(db, CHARGE)
        assert (await call.answer()).status == 202
        assert (await call.answer(wait=0.3)).status == 202
        assert not db.in_transaction()
    await made.engine.dispose()


@DRIVERS
async def test_the_database_goes_away_while_somebody_waits(db_url: str, idem_toml: Path, driver: str) -> None:
    _, charge = define(idem_toml)
    with cuttable(db_url) as line:
        made = waiting(charge, line.url, driver)
        (call,) = await made.submitted("k1")
        asked = asyncio.create_task(call.answer(wait=2))
        await asyncio.sleep(0.2)
        line.down = True
        with pytest.raises(StoreUnavailable, match="cannot say how this request stands: ask again, same key"):
            await asyncio.wait_for(asked, BOUND)
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(call.answer(), BOUND)
        asked = asyncio.create_task(call.answer(wait=3))
        await asyncio.sleep(0.5)
        line.down = False
        assert (await asyncio.wait_for(asked, BOUND)).status == 202
        await made.engine.dispose()


@pytest.mark.parametrize("own", ["session", "psycopg"])
async def test_a_blocking_caller_waits_too(shop_url: str, idem_toml: Path, bank: Bank, own: str) -> None:
    idem, charge = define(idem_toml)
    with idem.pointed_at("ledger", bank.url), cuttable(shop_url) as line:
        call = charge.begin(key="k1")
        engine = engine_of(line.url)
        connection = psycopg.connect(line.url)
        if own == "session":
            with Session(engine) as db, db.begin():
                assert call.reserve(db)
                call.submit(db, CHARGE)
        else:
            assert call.reserve(connection)
            call.submit(connection, CHARGE)
            connection.commit()
        assert call.answer(wait=0.2).status == 202
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        asked = asyncio.create_task(asyncio.to_thread(call.answer, wait=BOUND))
        await work(idem, shop_url)
        assert (await asked).status == 201
        line.down = True
        with pytest.raises(StoreUnavailable):
            call.answer(wait=0.5)
        connection.close()
