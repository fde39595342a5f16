"""The design's example runs as it stands: a charge, its retries, its answer."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from adopt.shop import ORDER, Order, build, define
from adopt.working import count, work
from fastapi import Depends, FastAPI, Response
from fix_sql import async_engine_of
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from idem import Answer, AsyncCall, Idem, Request, Settled, response
from idem.outbox.handlers.runner import HandlerRunner
from idem.testing.bank import Bank

PATH = f"/orders/{ORDER}/payment"


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_charge_and_its_retries(shop_url: str, idem_toml: Path, bank: Bank, driver: str) -> None:
    idem, charge = define(idem_toml)
    app = build(charge, shop_url, driver=driver)
    with idem.pointed_at("ledger", bank.url):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            missing = await client.post(PATH)
            assert (missing.status_code, missing.json()["code"]) == (400, "key_missing")
            first = await client.post(PATH, headers={"Idempotency-Key": "k1"})
            assert first.status_code == 202, first.text
            again = await client.post(PATH, headers={"Idempotency-Key": "k1"})
            assert (again.status_code, again.json()["code"]) == (409, "in_progress")
            await work(idem, shop_url)
            final = await client.post(PATH, headers={"Idempotency-Key": "k1"})
            assert final.status_code == 201, final.text
            assert final.headers["idempotent-replayed"] == "true"
            assert final.json()["status"] == "succeeded"
            assert (await client.post(PATH, headers={"Idempotency-Key": '"k1"'})).content == final.content
            other = await client.post(PATH, headers={"Idempotency-Key": "k1"}, json={"note": "other"})
            assert (other.status_code, other.json()["code"]) == (422, "key_reused")
            elsewhere = await client.post(PATH, headers={"Idempotency-Key": "k1", "X-Account": "other"})
            assert elsewhere.status_code == 202
    assert len(bank.log.payments()) == 1
    assert count(shop_url, "attempts") == 2


def example() -> str:
    """The block of Python in the design, as it stands."""
    text = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
    return text.split("**Python** (`from idem import Idem`)")[1].split("```python\n")[1].split("```")[0]


async def test_the_design_s_block(shop_url: str, idem_toml: Path, bank: Bank, monkeypatch: Any, tmp_path: Path) -> None:
    """With what it does not say: imports, a model, a session, and a body of the handler that can be seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IDEM_DATABASE_URL", shop_url)
    sessions = async_sessionmaker(async_engine_of(shop_url))

    async def get_db() -> AsyncIterator[AsyncSession]:
        async with sessions() as session:
            yield session

    class Charge(BaseModel):
        amount: int
        currency: str

    app = FastAPI()
    names = {
        "app": app, "Idem": Idem, "Answer": Answer, "Request": Request, "Settled": Settled, "AsyncCall": AsyncCall,
        "response": response,
        "Charge": Charge, "Order": Order, "Db": Annotated[AsyncSession, Depends(get_db)], "Session": Session,
        "Annotated": Annotated, "Depends": Depends, "Response": Response, "UUID": UUID, "timedelta": timedelta,
        "__name__": "design",
    }  # fmt: skip
    block = example()
    marked = block.replace("s: Settled[Charge]) -> None: ...", "s: Settled[Charge]) -> None:\n    told.append(s)")
    assert marked != block
    told: list[Any] = names.setdefault("told", [])  # type: ignore[assignment]
    exec(marked.replace("timedelta(seconds=8)", "timedelta(seconds=0)"), names)
    idem: Any = names["idem"]
    await HandlerRunner(shop_url, idem.handlers).run_once()  # a worker is there before the first request
    with idem.pointed_at("ledger", bank.url):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            assert (await client.post(PATH, headers={"Idempotency-Key": "k1"})).status_code == 202
            await work(idem, shop_url)
            final = await client.post(PATH, headers={"Idempotency-Key": "k1"})
        assert final.status_code == 201
        await HandlerRunner(shop_url, idem.handlers).run_once()
    assert [(s.operation, s.succeeded, s.params) for s in told] == [
        ("payments.create", True, Charge(amount=4200, currency="eur"))
    ]
    assert told[0].reference == final.json()["payment"]
