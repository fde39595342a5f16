from uuid import UUID

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from app.db import Db
from app.models import Order


class NewOrder(BaseModel):
    total: int


class ShownOrder(BaseModel):
    id: UUID
    total: int
    state: str


app = FastAPI(title="shop")


@app.post("/orders", status_code=201)
async def create_order(new: NewOrder, db: Db) -> ShownOrder:
    order = Order(total=new.total)
    db.add(order)
    await db.commit()
    return ShownOrder.model_validate(order, from_attributes=True)


@app.get("/orders/{order_id}")
async def show_order(order_id: UUID, db: Db) -> ShownOrder:
    order = await db.get(Order, order_id)
    if order is None:
        raise HTTPException(404, "no such order")
    return ShownOrder.model_validate(order, from_attributes=True)
