"""Charges, created directly or by a PaymentIntent."""

from collections.abc import Mapping
from typing import Any

from idem.testing.bank.stripe.draft import Draft
from idem.testing.bank.stripe.params import amount, currency, flag, metadata, number, rest
from idem.testing.bank.stripe.refusals import StripeError, declined

KIND = "charge"
_OWN = ("amount", "currency", "metadata", "capture", "source", "payment_method")


def create(draft: Draft, params: Mapping[str, Any]) -> None:
    """`POST /v1/charges`.

    Raises:
        StripeError: a parameter is wrong, or the card was declined.
    """
    asked = {"amount": amount(params), "currency": currency(params), "metadata": metadata(params)}
    captured = flag(params, "capture") if "capture" in params else True
    if not (params.get("source") or params.get("customer") or params.get("payment_method")):
        raise StripeError.invalid("Must provide source or customer.", "parameter_missing", "source")
    course = draft.order(params.get("payment_method") or params.get("source"))
    members = {**rest(params, _OWN), **asked, "payment_method": params.get("payment_method"), "payment_intent": None}
    match course.status:
        case "declined":
            id = make(draft, members, "failed", captured=False)
            raise StripeError(402, declined({"charge": id}), executed=True)
        case "processing":
            id = make(draft, members, "pending", captured=captured)
            end(draft, id, course.becomes != "declined", after=course.seconds)
        case _:
            make(draft, members, "succeeded", captured=captured)


def capture(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/charges/{id}/capture`.

    Raises:
        StripeError: there is no such charge, or nothing is left to capture.
    """
    charge = draft.take(id, KIND)
    if charge["captured"] or charge["status"] != "succeeded":
        raise StripeError.invalid(f"Charge {id} has already been captured.", "charge_already_captured", executed=True)
    taken = number(params, "amount")
    taken = charge["amount"] if taken is None else taken
    draft.change(id, {"captured": True, "amount_captured": taken}, "charge.captured")


def make(
    draft: Draft, members: Mapping[str, Any], status: str, *, captured: bool, root: str | None = None,
    after: float | None = None,
) -> str:  # fmt: skip
    """Add a charge in this status, with its event; returns its id."""
    failed = status == "failed"
    own = {
        "status": status,
        "amount_captured": members["amount"] if captured and status == "succeeded" else 0,
        "amount_refunded": 0,
        "captured": captured and status == "succeeded",
        "paid": status == "succeeded",
        "refunded": False,
        "failure_code": "card_declined" if failed else None,
        "failure_message": "Your card was declined." if failed else None,
        "outcome": {"network_status": "declined_by_network" if failed else "approved_by_network"},
    }
    return draft.make(KIND, "ch", {**own, **members}, f"charge.{status}", root=root, after=after)


def end(draft: Draft, id: str, well: bool, *, after: float, root: str | None = None) -> None:
    """End a pending charge by itself, `after` so many seconds."""
    amount = draft.view(id)["amount"]
    if well:
        patch = {"status": "succeeded", "paid": True, "captured": True, "amount_captured": amount}
        draft.change(id, patch, "charge.succeeded", after=after, root=root)
    else:
        patch = {"status": "failed", "failure_code": "card_declined", "failure_message": "Your card was declined."}
        draft.change(id, patch, "charge.failed", after=after, root=root)
