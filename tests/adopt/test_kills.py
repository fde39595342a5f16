"""The server of the user's endpoint is killed at every moment of it: their row and ours, all or nothing, and once."""

import os
import signal
from pathlib import Path

import httpx
import psycopg
import pytest
from adopt.proof_server import Server, Street
from adopt.shop import ORDER, define
from adopt.working import work
from fix_line import target, through
from fix_waiting import until_it_holds

from idem.testing.bank import Bank
from idem.testing.proxy import Direction, Proxy, ProxyAction

PATH = f"/orders/{ORDER}/payment"
STORED = """
SELECT (SELECT count(*) FROM attempts),
       (SELECT count(*) FROM idem.idempotency_keys), (SELECT count(*) FROM idem.intents),
       (SELECT count(*) FROM idem.requests), (SELECT count(*) FROM idem.outbox)
"""
OPEN = """
SELECT FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL
   AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
BOUND = 30.0


def stored(url: str) -> int:
    """How many payments stand, in their table and in all of ours alike; once no backend is at it any more."""
    with psycopg.connect(url, autocommit=True) as own:
        until_it_holds(lambda: not own.execute(OPEN).fetchone(), what="the end of each transaction", every=0.01)
        found = own.execute(STORED).fetchone()
    assert found is not None and len(set(found)) == 1, found
    return int(found[0])


async def send(to: Server, key: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=to.url, timeout=BOUND, verify=False) as client:
        return await client.post(PATH, headers={"Idempotency-Key": key})


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_killed_at_a_statement(street: Street, shop_url: str, idem_toml: Path, bank: Bank, driver: str) -> None:
    with street.server(shop_url, idem_toml, bank.url, driver) as healthy:
        assert (await send(healthy, "whole")).status_code == 202
        moments = healthy.moments()
        names = [each.removeprefix("before ") for each in moments if each.startswith("before ")]
        committed = moments.index("before COMMIT")
        assert [each for each in names if each.startswith("idem.")][:1] == ["idem.reserve"], names
        assert {"BEGIN", "SELECT orders.id, orders.total", "INSERT INTO attempts", "idem.submit", "COMMIT"} <= set(
            names
        )
        assert len(moments) > committed + 2, "the answer is read after the commit"
        payments = 1
        for number, moment in enumerate(moments):
            key = f"at-{number}"
            with street.server(shop_url, idem_toml, bank.url, driver, kill_at=number) as victim:
                with pytest.raises(httpx.TransportError):
                    await send(victim, key)
                assert victim.killed()
            assert stored(shop_url) == payments + (number > committed), moment
            told = await send(healthy, key)
            assert told.status_code == (409 if number > committed else 202), (moment, told.text)
            payments += 1
            assert stored(shop_url) == payments, moment
    idem, _ = define(idem_toml)
    with idem.pointed_at("ledger", bank.url):
        for _ in range(10):
            await work(idem, shop_url)
    assert len(bank.log.payments()) == payments


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_killed_during_a_commit(street: Street, shop_url: str, idem_toml: Path, bank: Bank, driver: str) -> None:
    """The server commits, and nobody is there to hear it."""
    victims: list[int] = []

    def kill(_number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server" and b"COMMIT" in data and victims:
            os.kill(victims.pop(), signal.SIGKILL)
        return "pass"

    async with Proxy(target(shop_url), after=kill) as proxy:
        with street.server(through(shop_url, proxy), idem_toml, bank.url, driver) as victim:
            victims.append(victim.pid)
            with pytest.raises(httpx.TransportError):
                await send(victim, "k1")
            assert not victims, "there was no COMMIT"
    assert stored(shop_url) == 1
    with street.server(shop_url, idem_toml, bank.url, driver) as healthy:
        assert (await send(healthy, "k1")).status_code == 409
    assert stored(shop_url) == 1
