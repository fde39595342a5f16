"""Many requests with one key, and callers that keep their transactions open: one is first, and nobody waits."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest
from adopt.proof_server import Street
from adopt.shop import ORDER, Charge, define
from adopt.working import count, work
from fix_server import KEPT
from fix_sql import engine_of, query
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem.testing.bank import Bank

PATH = f"/orders/{ORDER}/payment"
CHARGE = Charge(amount=100, currency="eur")


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_fifty_requests_one_key(street: Street, shop_url: str, idem_toml: Path, bank: Bank, driver: str) -> None:
    with (
        street.server(shop_url, idem_toml, bank.url, driver) as one,
        street.server(shop_url, idem_toml, bank.url, driver) as other,
    ):
        async with httpx.AsyncClient(timeout=60, limits=KEPT, verify=False) as client:
            await asyncio.gather(*(client.get(f"{at.url}/moments") for at in (one, other) for _ in range(25)))
            asked = (
                client.post(f"{at.url}{PATH}", headers={"Idempotency-Key": "k1"})
                for _ in range(25)
                for at in (one, other)
            )
            told = await asyncio.gather(*asked)
    assert Counter(each.status_code for each in told) == {202: 1, 409: 49}
    assert {each.json()["code"] for each in told if each.status_code == 409} == {"in_progress"}
    assert all("retry-after" in each.headers for each in told)
    assert count(shop_url, "attempts") == count(shop_url, "idem.intents") == count(shop_url, "idem.outbox") == 1


def test_two_keys_in_opposite_order_meet_without_a_deadlock(db_url: str, idem_toml: Path) -> None:
    _, charge = define(idem_toml)
    engine = engine_of(db_url)
    calls = {(who, key): charge.begin(key=key) for who in "12" for key in "ab"}
    with Session(engine) as one, Session(engine) as two:
        for db in (one, two):
            db.begin()
            # Whoever waited here would fail: both are in one thread.
            db.execute(text("SET LOCAL lock_timeout = '3s'"))
        assert calls["1", "a"].reserve(one)
        calls["1", "a"].submit(one, CHARGE)
        assert calls["2", "b"].reserve(two)
        calls["2", "b"].submit(two, CHARGE)
        assert not calls["1", "b"].reserve(one)
        assert not calls["2", "a"].reserve(two)
        two.commit()
        one.commit()
    assert [call.answer().status for call in calls.values()] == [202, 409, 409, 202]
    assert count(db_url, "idem.intents") == 2


async def test_a_caller_that_keeps_its_transaction_open_delays_none(shop_url: str, idem_toml: Path, bank: Bank) -> None:
    idem, charge = define(idem_toml)
    engine = engine_of(shop_url)
    first, other = charge.begin(key="long"), charge.begin(key="other")
    with idem.pointed_at("ledger", bank.url), Session(engine) as long:
        long.begin()
        assert first.reserve(long)
        long.execute(text("INSERT INTO attempts VALUES (gen_random_uuid(), :order)"), {"order": ORDER})
        first.submit(long, CHARGE)
        for isolation in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            with Session(engine.execution_options(isolation_level=isolation)) as db, db.begin():
                db.execute(text("SET LOCAL lock_timeout = '3s'"))
                second = charge.begin(key="long")
                assert not second.reserve(db)
            told = second.answer()
            assert (told.status, b"in_progress" in told.body) == (409, True)
        with Session(engine) as db, db.begin():
            assert other.reserve(db)
            other.submit(db, CHARGE)
        await work(idem, shop_url)
        assert other.answer().status == 201
        # Whoever waits for the first hears how it is, when it is over.
        with Session(engine) as db, db.begin():
            second = charge.begin(key="long")
            assert not second.reserve(db)
        assert second.answer(wait=0.3).status == 409
        long.commit()
        assert second.answer(wait=0.3).status == 409
        await work(idem, shop_url)
        assert second.answer(wait=30).status == 201
    assert query(shop_url, "SELECT count(*) FROM idem.dead_letters")[0] == (0,)


def test_who_waits_for_a_transaction_that_is_rolled_back_is_told_to_ask_again(db_url: str, idem_toml: Path) -> None:
    _, charge = define(idem_toml)
    engine = engine_of(db_url)
    with Session(engine) as one:
        one.begin()
        assert charge.begin(key="k").reserve(one)
        with Session(engine) as db, db.begin():
            second = charge.begin(key="k")
            assert not second.reserve(db)
        one.rollback()
    told = second.answer(wait=0.2)
    assert (told.status, b"in_progress" in told.body) == (409, True)
