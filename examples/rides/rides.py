"""A ride is four steps: book it, charge it, note that it is paid, mail the receipt. The daemons read this too.

Between any two of them the process may die. The flow then goes on at the step that is open: no ride is booked twice,
no card is charged twice, and no charge is forgotten.
"""

from typing import Any

import mailing
from pydantic import BaseModel
from sqlalchemy.orm import Session
from tables import Phase, Ride, Rider

from idem import Answer, Idem, Request, Settled, Step
from idem.outcomes import Refused, Succeeded

PRICE = 2000
"""Of every ride, in cents."""

idem = Idem()
idem.provider("mail", send=mailing.send, lookup={"by_key": mailing.find, "horizon": "1s", "agree": 2})


class NewRide(BaseModel):
    rider: int
    origin: str
    destination: str


# A local step writes the service's own rows, in one transaction with idem's note that it is done: both, or neither.
def book(db: Session, p: NewRide, results: Any) -> dict[str, Any] | Refused:
    rider = db.get(Rider, p.rider)
    if rider is None:
        return Refused(None, "no_such_rider")  # the refusal of the first step is the client's answer
    ride = Ride(rider=p.rider, origin=p.origin, destination=p.destination, state="booked")
    db.add(ride)
    db.flush()
    return {"ride": ride.id, "card": rider.card, "email": rider.email}  # what later steps need of it


def cancel(db: Session, p: NewRide, results: Any) -> None:
    db.get_one(Ride, results["book"].fields["ride"]).state = "cancelled"


def charge(p: NewRide, results: Any) -> Request:
    booked = results["book"].fields
    return Request(
        "POST", "/v1/payment_intents",
        json={"amount": PRICE, "currency": "usd", "payment_method": booked["card"], "confirm": True,
              "metadata": {"ride": booked["ride"]}},
    )  # fmt: skip


def mark_paid(db: Session, p: NewRide, results: Any) -> None:
    ride = db.get_one(Ride, results["book"].fields["ride"])
    ride.state, ride.payment = "paid", results["charge"].reference


def receipt(p: NewRide, results: Any) -> dict[str, Any]:
    return {"to": results["book"].fields["email"], "subject": "Your ride", "ride": results["book"].fields["ride"]}


def answer(outcome: Succeeded | Refused) -> Answer:
    if outcome.succeeded:
        steps = outcome.steps
        return Answer(201, {"ride": steps["book"].fields["ride"], "payment": steps["charge"].reference})
    if "charge" in outcome.steps:
        return Answer(402, {"error": "the card was refused", "code": outcome.fields.get("code")})
    return Answer(422, {"error": "there is no such rider"})


ride = idem.operation(
    "rides.create",
    NewRide,
    steps=[
        Step("book", run=book, undo=Step("cancel", run=cancel)),
        Step("charge", provider="stripe", request=charge, on_refusal="compensate"),
        Step("paid", run=mark_paid, on_refusal="operator"),
        Step("receipt", provider="mail", request=receipt, on_refusal="operator"),
    ],
    completes_when="step:paid",  # the client does not wait for the mail
    answer=answer,
    label=lambda p: f"rider {p.rider}",
    redrive="auto",
)


@ride.on_step
def note_phase(db: Session, s: Settled[NewRide]) -> None:
    """Runs in a worker, once for each step that has ended."""
    db.add(Phase(request=s.key, phase=s.step, outcome=s.step_outcome))
