"""A shop in Flask: the payment of an order.

export IDEM_DATABASE_URL=postgresql://…  BANK_TOKEN=main-token
idem db upgrade
flask --app flask_orders tables
idem bank run --port 8600                       # the provider
idem run --no-api --app flask_orders:idem       # the daemons
flask --app flask_orders run

curl -X POST localhost:5000/orders/1/payment -H 'Idempotency-Key: p1'
"""

from flask import Flask, abort, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from idem import Answer, Idem, Request, Settled

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
idem.install(app)  # a database that is away is 503 with Retry-After
engine = create_engine(idem.database_url.replace("postgresql://", "postgresql+psycopg://"))
session = scoped_session(sessionmaker(engine))  # what Flask-SQLAlchemy calls db.session


@app.teardown_appcontext
def end_of_request(_: BaseException | None) -> None:
    session.remove()  # what was not committed never happened


@app.post("/orders/<int:order_id>/payment")
@charge.covers  # so that idem.audit(app) sees it
def pay(order_id: int) -> ResponseReturnValue:
    call = charge.begin(key=request.headers.get("Idempotency-Key"), path=request.path, body=request.get_data())
    if call.reserve(session):
        order = session.get(Order, order_id, with_for_update=True) or abort(404)
        if order.state != "open":
            abort(409)  # it is paid, or another request pays it now
        order.state = "paying"
        call.submit(session, Charge(order=order.id, amount=order.total))
    session.commit()
    answer = call.answer(wait=8)  # after the commit
    return answer.body, answer.status, dict(answer.headers)


@app.cli.command("tables")
def tables() -> None:
    """Make the shop's table, with an order: `flask --app flask_orders tables`."""
    Base.metadata.create_all(engine)
    with engine.begin() as db:
        db.execute(text("INSERT INTO flask_orders (id, total) VALUES (1, 4200) ON CONFLICT DO NOTHING"))
