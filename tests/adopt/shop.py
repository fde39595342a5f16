"""A user's own application: FastAPI, SQLAlchemy, a table of theirs. Written as the design's example is."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import Depends, FastAPI, Request, Response
from fix_sql import driven
from pydantic import BaseModel
from sqlalchemy import ForeignKey, Integer
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from idem import Answer, AsyncCall, Idem, response
from idem import Request as ProviderRequest

CONFIG = Path(__file__).with_name("shop_config.toml").read_text()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    total: Mapped[int] = mapped_column(Integer)


class Attempt(Base):
    """What the endpoint writes beside the effect: one row for each payment that was asked for."""

    __tablename__ = "attempts"
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    order_id: Mapped[UUID] = mapped_column(ForeignKey("orders.id"))


class Charge(BaseModel):
    amount: int
    currency: str
    order: UUID | None = None


def account(request: Request) -> str:
    """The tenant, out of a credential."""
    return request.headers.get("x-account", "acme")


def define(path: Path, **said: Any) -> tuple[Idem, Any]:
    """The application's idem and its operation."""
    idem = Idem(path, tenant=account)
    charge = idem.operation(
        "payments.create", Charge, provider="ledger",
        request=lambda p: ProviderRequest("POST", "/payments", json={"amount": p.amount, "currency": p.currency}),
        answer=lambda o: Answer(201 if o.succeeded else 402, {"payment": o.reference, "status": o.status}),
        key_ttl="72h", start_within="15m", redrive="auto", **said,
    )  # fmt: skip
    return idem, charge


def build(charge: Any, url: str, *, driver: str = "psycopg", **engine_options: Any) -> FastAPI:
    """The design's endpoint, over one of the drivers."""
    engine = create_async_engine(driven(url, driver), **engine_options)
    sessions = async_sessionmaker(engine, expire_on_commit=False)

    async def get_db() -> AsyncIterator[AsyncSession]:
        async with sessions() as session:
            yield session

    Db = Annotated[AsyncSession, Depends(get_db)]
    app = FastAPI()
    app.state.engine = engine

    @app.post("/orders/{order_id}/payment")
    async def pay(
        order_id: UUID, call: Annotated[AsyncCall, Depends(charge.call_async)], db: Db, wait: float = 0
    ) -> Response:
        async with db.begin():
            if await call.reserve(db):
                order = await db.get_one(Order, order_id, with_for_update=True)
                db.add(Attempt(order_id=order.id))
                await db.flush()
                await call.submit(db, Charge(amount=order.total, currency="eur", order=order.id))
        return response(await call.answer(wait=timedelta(seconds=wait)))

    return app


ORDER = UUID("00000000-0000-7000-8000-000000000001")
TABLES = """
CREATE TABLE orders (id uuid PRIMARY KEY, total integer NOT NULL);
CREATE TABLE attempts (id uuid PRIMARY KEY, order_id uuid NOT NULL REFERENCES orders);
"""
