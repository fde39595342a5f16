"""An application that only accepts. Run by the interpreter of an environment: `shop.py URL DRIVER sync|async`."""

import asyncio
import json
import sys
from importlib.util import find_spec

from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from idem import Answer, Idem, Request


class Charge(BaseModel):
    """What is to be paid, in the smallest unit."""

    amount: int


idem = Idem()
idem.provider(
    "ledger",
    on_unsettleable="operator",
    key={"carrier": "none"},
    errors={"shape": "/error/code"},
    object={"reference": "/id", "status": "/status"},
    outcome=[{"says": "final", "when": {"/status": "succeeded"}}],
    accounts={"main": {"origin": "https://ledger.example", "authorization": {"env": "LEDGER_TOKEN"}}},
)
charge = idem.operation(
    "payments.create",
    Charge,
    provider="ledger",
    request=lambda p: Request("POST", "/payments", json={"amount": p.amount}),
    answer=lambda o: Answer(201, {"payment": o.reference}),
)


def endpoint(url: str) -> list[object]:
    """What an endpoint of Flask does, and a script that accepts."""
    with create_engine(url).connect() as db:
        call = charge.begin(key="k1", body=b'{"cart": 7}', path="/orders/7")
        with db.begin():
            assert call.reserve(db)
            call.submit(db, Charge(amount=4200))
        answer = call.answer()
        with db.begin():
            decision = charge.accept(db, Charge(amount=1), key="k2")
    return [answer.status, type(decision).__name__]


async def asynchronous(url: str) -> list[object]:
    """The same, asynchronously."""
    engine = create_async_engine(url)
    async with engine.connect() as db:
        call = charge.begin_async(key="k1", body=b'{"cart": 7}', path="/orders/7")
        async with db.begin():
            assert await call.reserve(db)
            await call.submit(db, Charge(amount=4200))
        answer = await call.answer()
        async with db.begin():
            decision = await charge.accept_async(db, Charge(amount=1), key="k2")
    await engine.dispose()
    return [answer.status, type(decision).__name__]


url, driver, way = sys.argv[1:]
made = url.replace("postgresql://", f"postgresql+{driver}://", 1)
told = asyncio.run(asynchronous(made)) if way == "async" else endpoint(made)
# The hint has a thread of its own, which ends with the program.
idem.close()
there = [name for name in ("psycopg", "asyncpg", "httpx", "starlette") if find_spec(name)]
json.dump({"told": told, "there": there}, sys.stdout)
