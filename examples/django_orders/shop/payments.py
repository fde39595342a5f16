"""What the shop says about its payments. The daemons import this module alone, so it needs no django.setup()."""

from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem import Answer, Idem, Request, Settled

idem = Idem()


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
    """`db` is a session of SQLAlchemy on idem's own connection: a model's save() would be another transaction."""
    if s.event == "completed":
        db.execute(
            text("UPDATE shop_order SET state = :state WHERE id = :order"),
            {"state": "paid" if s.succeeded else "open", "order": s.params.order},
        )
