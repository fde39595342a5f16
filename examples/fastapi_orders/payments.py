"""What the shop says about its payments. The daemons read it too: `idem run --no-api --app payments:idem`."""

from pydantic import BaseModel
from sqlalchemy.orm import Session
from tables import Order

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
    # A payment that waits for its customer is not complete. Until then the client gets 202, with what it needs next.
    completes_when="final",
    interim=lambda p: {"payment": p.reference, "redirect": p.fields.get("redirect")},
    label=lambda p: f"order {p.order}",
    start_within="15m",
    redrive="auto",
)


@charge.on_settled
def mark_order(db: Session, s: Settled[Charge]) -> None:
    """Runs in a worker, once, in one transaction with idem's mark that it ran."""
    order = db.get_one(Order, s.params.order, with_for_update=True)
    if s.succeeded:
        order.state, order.payment = "paid", s.reference
    elif s.event == "completed":
        order.state = "open"  # refused, or cancelled: the customer may try another card, which is another key
