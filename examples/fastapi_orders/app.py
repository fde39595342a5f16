"""A shop in FastAPI: orders, and their payment.

export IDEM_DATABASE_URL=postgresql://…  BANK_TOKEN=main-token
export BANK_WEBHOOK_SECRET=whsec_aWRlbSBiYW5rIHRlc3Qgc2VjcmV0IG9mIDMyIGJ5dGVz
idem db upgrade && python app.py                # the tables: idem's, and the shop's
idem bank run --settings bank.json                                # the provider
idem run --no-api --app payments:idem                             # the daemons
uvicorn app:app

curl -X POST localhost:8000/orders -d '{"total": 4200}' -H 'content-type: application/json' -H 'Idempotency-Key: o1'
curl -X POST localhost:8000/orders/1/payment -H 'Idempotency-Key: p1'
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Response
from payments import Charge, charge, idem
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from tables import Base, Order

from idem import Answer, AsyncCall, response

engine = create_async_engine(idem.database_url.replace("postgresql://", "postgresql+psycopg://"))
sessions = async_sessionmaker(engine, expire_on_commit=False)


# It gives the session and does not begin a transaction: the endpoint does, so that it commits before its answer leaves.
async def session() -> AsyncIterator[AsyncSession]:
    async with sessions() as db:
        yield db


Db = Annotated[AsyncSession, Depends(session)]
app = FastAPI()
idem.install(app)  # what idem raises becomes a 503 that says: the same again
app.mount("/webhooks", idem.webhooks())  # the bank's events come in at /webhooks/bank


class NewOrder(BaseModel):
    total: int


# A local operation: the shop's own row is the effect, and a retry gets the same order.
place_order = idem.operation("orders.create", NewOrder)


@app.post("/orders")
async def create(new: NewOrder, call: Annotated[AsyncCall, Depends(place_order.call_async)], db: Db) -> Response:
    async with db.begin():
        if await call.reserve(db):
            order = Order(total=new.total)
            db.add(order)
            await db.flush()
            await call.complete(db, Answer(201, {"order": order.id}))
    return response(await call.answer())


@app.post("/orders/{order_id}/payment")
async def pay(order_id: int, call: Annotated[AsyncCall, Depends(charge.call_async)], db: Db) -> Response:
    async with db.begin():
        if await call.reserve(db):  # False: a retry. It writes nothing, and its answer is known
            order = await db.get(Order, order_id, with_for_update=True)
            if order is None:
                raise HTTPException(404)  # everything is rolled back, and the key is free
            if order.state != "open":
                await call.refuse(db, Answer(409, {"order": order.id, "state": order.state}))
            else:
                order.state = "paying"
                await call.submit(db, Charge(order=order.id, amount=order.total))
    return response(await call.answer(wait=timedelta(seconds=8)))


@app.get("/orders/{order_id}")
async def show(order_id: int, db: Db) -> dict[str, object]:
    order = await db.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"order": order.id, "total": order.total, "state": order.state, "payment": order.payment}


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
