"""A shop in Flask: the payment of an order.

idem run --no-api --app flask_orders:idem       # the daemons; bank and database: see idem.toml
flask --app flask_orders run

curl -X POST localhost:5000/orders/1/payment -H 'Idempotency-Key: p1'
"""

from flask import Flask, abort, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from idem import Answer, Idem, Request, RetryTransaction, Settled, StoreUnavailable

idem = Idem()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "flask_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]
    state: Mapped[str] = mapped_column(server_default="open")


class Charge(BaseModel):
    order: int
    amount: int


charge = idem.operation(
    "payments.create",
    Charge,
    provider="bank",
    request=lambda p: Request("POST", "/payments", json={"amount": p.amount, "currency": "eur"}),
    answer=lambda o: Answer(201 if o.succeeded else 402, {"payment": o.reference, "status": o.status}),
)


@charge.on_settled
def mark_order(db: Session, s: Settled[Charge]) -> None:
    if s.event == "completed":
        db.get_one(Order, s.params.order).state = "paid" if s.succeeded else "open"


app = Flask(__name__)
engine = create_engine(idem.database_url.replace("postgresql://", "postgresql+psycopg://"))


@app.post("/orders/<int:order_id>/payment")
@charge.covers  # so that idem.audit(app) sees it
def pay(order_id: int) -> ResponseReturnValue:
    call = charge.begin(key=request.headers.get("Idempotency-Key"), path=request.path, body=request.get_data())
    with Session(engine) as db, db.begin():
        if call.reserve(db):
            order = db.get(Order, order_id, with_for_update=True) or abort(404)
            order.state = "paying"
            call.submit(db, Charge(order=order.id, amount=order.total))
    told = call.answer(wait=8)  # after the commit
    return told.body, told.status, dict(told.headers)


@app.errorhandler(StoreUnavailable)
@app.errorhandler(RetryTransaction)
def again(_: Exception) -> ResponseReturnValue:
    return {"detail": "Send the same request again, with the same key."}, 503, {"Retry-After": "1"}


@app.cli.command("tables")
def tables() -> None:
    """Make the shop's table, with an order: `flask --app flask_orders tables`."""
    Base.metadata.create_all(engine)
    with engine.begin() as db:
        db.execute(text("INSERT INTO flask_orders (id, total) VALUES (1, 4200) ON CONFLICT DO NOTHING"))
