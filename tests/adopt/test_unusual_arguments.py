"""What an application may hand over without a thought: tenants that are objects, params with aliases and secrets."""

import asyncio
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from adopt.proof_desk import CHARGE, Desk, opened_desk  # noqa: F401
from adopt.shop import Charge
from fastapi import Depends, FastAPI, Response
from fix_sql import async_engine_of
from fix_waiting import stopping, until
from pydantic import BaseModel, Field, SecretStr, computed_field
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session

from idem import Answer, AsyncCall, Idem, Misuse, Request, Settled, response
from idem.errors import BodyInvalid, NoTransaction, Unrenderable
from idem.outbox.handlers.runner import HandlerRunner


class User:
    """Its text names its place in memory: another one in each request."""


def charging(path: Path, model: Any, **said: Any) -> tuple[Idem, Any]:
    idem = Idem(path, **said)
    return idem, idem.operation(
        "other.create",
        model,
        provider="ledger",
        request=lambda p: Request("POST", "/payments", json={"amount": 1, "note": repr(p)}),
        answer=lambda o: Answer(201, {"payment": o.reference}),
    )


@pytest.mark.parametrize("tenant", [User, lambda: {"id": 1}, lambda: True, lambda: b"acme", lambda: 1.5])
async def test_a_tenant_that_is_an_object(desk: Desk, idem_toml: Path, tenant: Any) -> None:
    _, charge = charging(idem_toml, Charge, tenant=tenant)
    app = FastAPI()
    engine = async_engine_of(desk.url, "asyncpg")

    @app.post("/pay")
    async def pay(call: Annotated[AsyncCall, Depends(charge.call_async)]) -> Response:
        async with AsyncSession(engine) as db, db.begin():
            if await call.reserve(db):
                await call.submit(db, CHARGE)
        return response(await call.answer())

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        with pytest.raises(Misuse, match="tenant"):
            for _ in range(3):
                await client.post("/pay", headers={"Idempotency-Key": "k1"})
    assert desk.count("idem.intents") == 0


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")


class Secret(BaseModel):
    token: SecretStr


class Computed(BaseModel):
    model_config = {"extra": "forbid"}
    a: int

    @computed_field
    def double(self) -> int:
        return 2 * self.a


class Kinds(BaseModel):
    a: Decimal
    b: datetime
    c: float
    d: bytes
    e: UUID


SAME = (Decimal("10.50"), datetime.now(UTC), uuid4())


def kinds(c: float = 0.1, d: bytes = b"x") -> Kinds:
    return Kinds(a=SAME[0], b=SAME[1], c=c, d=d, e=SAME[2])


def submit(desk: Desk, effect: Any, params: Any) -> None:
    call = effect.begin(key="k1")
    with desk.session() as db, db.begin():
        assert call.reserve(db)
        call.submit(db, params)


@pytest.mark.parametrize("params", [Aliased(orderId=4), Computed(a=2), kinds()], ids=lambda p: type(p).__name__)
def test_params_come_back_as_they_were(desk: Desk, idem_toml: Path, params: BaseModel) -> None:
    _, effect = charging(idem_toml, type(params))
    submit(desk, effect, params)
    assert effect.definition.read(effect.definition.written(params)) == params
    assert effect.definition.written(effect.definition.written(params)) == effect.definition.written(params)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        (Secret(token=SecretStr("tok_1")), Unrenderable, "have a SecretStr"),
        (kinds(d=b"\xff"), Unrenderable, "cannot be written as JSON"),
        (kinds(c=float("nan")), BodyInvalid, "nan"),
    ],
)
async def test_params_that_are_refused(desk: Desk, idem_toml: Path, params: BaseModel, error: Any, match: str) -> None:
    idem, effect = charging(idem_toml, type(params))
    with pytest.raises(error, match=match):
        submit(desk, effect, params)
    assert desk.count("idem.idempotency_keys") == 0
    app = FastAPI()
    idem.install(app)

    @app.post("/pay")
    def pay() -> None:
        submit(desk, effect, params)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        told = await client.post("/pay")
    assert (told.status_code, told.json()["code"]) == (422, "params_invalid")


def test_accept_begins_what_begins_by_itself(desk: Desk) -> None:
    with desk.session() as db:
        desk.charge.accept(db, CHARGE, key="k1")
        assert desk.count("idem.intents") == 0
        db.commit()
    with desk.engine.connect() as db:
        desk.charge.accept(db, CHARGE, key="k2")
        assert desk.count("idem.intents") == 1
        db.commit()
    assert desk.count("idem.intents") == 2


def test_accept_in_autocommit(desk: Desk) -> None:
    autocommit = desk.engine.execution_options(isolation_level="AUTOCOMMIT")
    with Session(autocommit) as db, pytest.raises(NoTransaction, match=r"^accept\(\) needs an open transaction"):
        desk.charge.accept(db, CHARGE, key="k1")
    with psycopg.connect(desk.url, autocommit=True) as own, pytest.raises(NoTransaction):
        desk.charge.accept(own, CHARGE, key="k1")
    assert desk.count("idem.intents") == 0


async def test_accept_over_a_scoped_session(desk: Desk) -> None:
    scoped = async_scoped_session(async_sessionmaker(async_engine_of(desk.url, "asyncpg")), scopefunc=lambda: 1)
    async with scoped.begin():
        await desk.charge.accept_async(scoped, CHARGE, key="k1")
    await scoped.remove()
    assert desk.count("idem.intents") == 1


@pytest.mark.parametrize("said", [{"key": uuid4()}, {"key": 5}, {"key": "k1", "tenant": uuid4()}])
def test_keys_and_tenants_that_are_no_text(desk: Desk, said: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match="give it as text"):
        desk.charge.begin(**said)
    with desk.session() as db, pytest.raises(Misuse, match="give it as text"):
        desk.charge.accept(db, CHARGE, **said)


@pytest.mark.parametrize("body", [None, {"coupon": "X1"}, {"amount": 5, "currency": "eur"}])
async def test_a_handler_hears_of_what_the_endpoint_refused(desk: Desk, idem_toml: Path, body: Any) -> None:
    """Its params are the body of the endpoint's client, which need not be of the operation's model."""
    idem, charge = charging(idem_toml, Charge)
    heard: list[Any] = []

    @charge.on_settled
    def hear(db: Session, settled: Settled[Charge]) -> None:
        heard.append((settled.outcome, settled.params))

    async with stopping(HandlerRunner(desk.url, idem.handlers, poll=0.05)) as runner:
        await runner.run_once()
        call = charge.begin(key="k1", body=body)
        with desk.session() as db, db.begin():
            assert call.reserve(db)
            call.refuse(db, Answer(409, {"error": "closed"}))
        await runner.run_once()
    assert heard == [("refused", Charge(**body) if body and "amount" in body else body)]
    assert desk.count("idem.handler_work") == 0


async def test_a_caller_that_is_cancelled_as_its_inline_call_has_begun(desk: Desk, monkeypatch: Any) -> None:
    """The client hangs up: the block is never entered, so the lease must not be renewed for nobody."""
    monkeypatch.setenv("IDEM_DATABASE_URL", desk.url)
    monkeypatch.setenv("LEDGER_TOKEN", "x")
    ship = desk.idem.operation("labels.buy", Charge, provider="ledger", inline=True, answer=lambda o: Answer(201, {}))
    call = ship.inline_async(CHARGE, key="k1")
    begin = call._begin

    async def begun() -> None:
        await begin()
        caller.get_loop().call_soon_threadsafe(caller.cancel)
        time.sleep(0.2)  # noqa: ASYNC251 - this loop stands still: the caller hears of its cancellation first

    monkeypatch.setattr(call, "_begin", begun)

    async def endpoint() -> None:
        async with call:
            raise AssertionError("the block was entered")

    caller = asyncio.create_task(endpoint())
    try:
        with pytest.raises(asyncio.CancelledError):
            await caller
        await until(lambda: desk.count("idem.outbox WHERE status = 'held'"), seconds=5)
    finally:
        await asyncio.to_thread(desk.idem.close)
    assert desk.count("idem.idempotency_keys WHERE state = 'failed_retryable'") == 1
