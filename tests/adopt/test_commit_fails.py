"""A client's view of an endpoint whose commit fails: never a 202 for what is not stored, and one intent in the end."""

from pathlib import Path

import httpx
import psycopg
import pytest
from adopt.proof_line import cuttable
from adopt.shop import ORDER, build, define
from adopt.working import count, rest, states, work

from idem.testing.bank import Bank

PATH = f"/orders/{ORDER}/payment"
DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'their own rule says no'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON attempts DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def shop(app: object) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://shop", headers={"Idempotency-Key": "k1"})


@DRIVERS
async def test_their_own_deferred_rule_refuses_the_commit(shop_url: str, idem_toml: Path, driver: str) -> None:
    _, charge = define(idem_toml)
    app = build(charge, shop_url, driver=driver)
    with psycopg.connect(shop_url, autocommit=True) as own:
        own.execute(REFUSE)
        async with shop(app) as client:
            for _ in range(2):
                assert (await client.post(PATH)).status_code == 500
                assert count(shop_url, "idem.idempotency_keys") == count(shop_url, "attempts") == 0
            own.execute("DROP TRIGGER refuse ON attempts")
            assert (await client.post(PATH)).status_code == 202
            assert (await client.post(PATH)).status_code == 409
    assert count(shop_url, "idem.intents") == count(shop_url, "attempts") == count(shop_url, "idem.outbox") == 1
    await app.state.engine.dispose()


@DRIVERS
@pytest.mark.parametrize("cut", ["before", "after"])
async def test_the_line_is_cut_at_the_commit(shop_url: str, idem_toml: Path, driver: str, cut: str) -> None:
    idem, charge = define(idem_toml)
    with cuttable(shop_url) as line:
        app = build(charge, line.url, driver=driver)
        idem.install(app)
        async with shop(app) as client:
            line.at = cut
            told = await client.post(PATH)
            assert (told.status_code, line.at) == (500, None)
            for _ in range(200):
                told = await client.post(PATH)
                if cut == "after" or told.status_code != 409 or count(shop_url, "idem.intents"):
                    break
            assert told.status_code == (409 if cut == "after" else 202), told.text
        await app.state.engine.dispose()
    assert count(shop_url, "idem.intents") == count(shop_url, "attempts") == count(shop_url, "idem.outbox") == 1


@DRIVERS
async def test_the_answer_cannot_be_read_after_the_commit(shop_url: str, idem_toml: Path, driver: str) -> None:
    """It is stored, nobody can say so: 503, and the retry finds the one intent."""
    idem, charge = define(idem_toml)
    with cuttable(shop_url) as line:
        app = build(charge, line.url, driver=driver, pool_pre_ping=False)
        idem.install(app)
        line.after_commit = "down"
        async with shop(app) as client:
            told = await client.post(PATH)
            assert (told.status_code, told.json()["code"]) == (503, "store_unavailable")
            assert "retry-after" in told.headers
            line.down = False
            assert (await client.post(PATH)).status_code == 409
        await app.state.engine.dispose()
    assert count(shop_url, "idem.intents") == count(shop_url, "attempts") == 1


@DRIVERS
async def test_a_key_at_rest_is_sent_without_new_rows(shop_url: str, idem_toml: Path, bank: Bank, driver: str) -> None:
    """Hazard 66: `reserve` is False for it, and the frozen request is sent."""
    idem, charge = define(idem_toml)
    app = build(charge, shop_url, driver=driver)
    with idem.pointed_at("ledger", bank.url):
        async with shop(app) as client:
            assert (await client.post(PATH)).status_code == 202
            await rest(idem, shop_url)
            assert states(shop_url) == [("failed_retryable", "held")]
            assert (await client.post(PATH)).status_code == 202
            assert (await client.post(PATH)).status_code == 409
            assert count(shop_url, "attempts") == count(shop_url, "idem.intents") == 1
            await work(idem, shop_url)
            assert (await client.post(PATH)).status_code == 201
    await app.state.engine.dispose()
    assert len(bank.log.payments()) == 1
