"""Refunds and payouts: outgoing money, sometimes over days."""

from collections.abc import Mapping
from typing import Any

from idem.testing.bank.stripe import charges, payment_intents
from idem.testing.bank.stripe.draft import Draft
from idem.testing.bank.stripe.params import amount, currency, metadata, number, rest
from idem.testing.bank.stripe.refusals import StripeError

REFUND, PAYOUT = "refund", "payout"


def refund(draft: Draft, params: Mapping[str, Any]) -> None:
    """`POST /v1/refunds`, of a charge or of a PaymentIntent, in full or in part.

    Raises:
        StripeError: there is no such charge, or less is left than was asked for.
    """
    charge = _refunded_charge(draft, params)
    left = charge["amount_captured"] - charge["amount_refunded"]
    if left <= 0:
        raise StripeError.invalid(f"Charge {charge['id']} has already been refunded.", "charge_already_refunded")
    asked = number(params, "amount")
    asked = left if asked is None else asked
    if not 1 <= asked <= left:
        raise StripeError.invalid(f"Refund amount ({asked}) is greater than what is left ({left}).", None, "amount")
    course = draft.order()
    pending = course.becomes is not None
    status = "pending" if pending else "failed" if course.status == "declined" else "succeeded"
    members = {
        **rest(params, ("amount", "metadata", "charge", "payment_intent")),
        "amount": asked,
        "charge": charge["id"],
        "payment_intent": charge["payment_intent"],
        "currency": charge["currency"],
        "metadata": metadata(params),
        "status": status,
        "failure_reason": "unknown" if status == "failed" else None,
    }
    id = draft.make(REFUND, "re", members, "refund.created")
    back = charge["amount_refunded"]
    if status == "failed":
        draft.change(id, {}, "refund.failed")
        return
    refunded = {"amount_refunded": back + asked, "refunded": back + asked == charge["amount_captured"]}
    draft.change(charge["id"], refunded, "charge.refunded")
    if course.becomes == "declined":
        failed = {"status": "failed", "failure_reason": "expired_or_canceled_card"}
        draft.change(id, failed, "refund.failed", after=course.seconds)
        undone = {"amount_refunded": back, "refunded": False}
        draft.change(charge["id"], undone, "charge.refund.updated", after=course.seconds, root=id)
    elif pending:
        draft.change(id, {"status": "succeeded"}, "refund.updated", after=course.seconds)


def payout(draft: Draft, params: Mapping[str, Any]) -> None:
    """`POST /v1/payouts`: pending, in transit, then paid or failed.

    Raises:
        StripeError: a parameter is wrong, or the balance is too low (`decline`).
    """
    asked = {"amount": amount(params), "currency": currency(params), "metadata": metadata(params)}
    course = draft.order()
    if course.status == "declined":
        message = "You have insufficient funds in your account for this transfer."
        raise StripeError.invalid(message, "balance_insufficient", executed=True)
    stripe = draft.account.stripe
    arrives, transit = stripe.payout_seconds, stripe.transit_seconds
    if course.becomes is not None and course.timed:
        arrives, transit = course.seconds, course.seconds / 2
    members = {
        **rest(params, ("amount", "currency", "metadata")),
        **asked,
        "status": "pending",
        "arrival_date": int(draft.at + arrives),
        "automatic": False,
        "failure_code": None,
        "method": params.get("method", "standard"),
        "type": "bank_account",
    }
    id = draft.make(PAYOUT, "po", members, "payout.created")
    draft.change(id, {"status": "in_transit"}, "payout.updated", after=transit)
    if course.becomes == "declined":
        failed = {"status": "failed", "failure_code": "account_closed", "failure_message": "The account is closed."}
        draft.change(id, failed, "payout.failed", after=arrives)
    else:
        draft.change(id, {"status": "paid"}, "payout.paid", after=arrives)


def cancel_refund(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/refunds/{id}/cancel`, while it is pending.

    Raises:
        StripeError: there is no such refund, or it is not pending any more.
    """
    found = _pending(draft, REFUND, id)
    draft.change(id, {"status": "canceled"}, "refund.updated", voids=True)
    charge = draft.find(found["charge"], charges.KIND)
    undone = {"amount_refunded": charge["amount_refunded"] - found["amount"], "refunded": False}
    draft.change(charge["id"], undone, "charge.refund.updated")


def cancel_payout(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/payouts/{id}/cancel`, with the same rules as `cancel_refund`."""
    _pending(draft, PAYOUT, id)
    draft.change(id, {"status": "canceled"}, "payout.canceled", voids=True)


def _pending(draft: Draft, kind: str, id: str) -> dict[str, Any]:
    found = draft.take(id, kind)
    if found["status"] != "pending":
        raise StripeError.invalid(f"This {kind} is {found['status']}: it cannot be canceled.", executed=True)
    return found


def _refunded_charge(draft: Draft, params: Mapping[str, Any]) -> dict[str, Any]:
    if params.get("payment_intent"):
        intent = draft.find(params["payment_intent"], payment_intents.KIND, "payment_intent")
        if intent["latest_charge"] is None:
            raise StripeError.invalid(f"The PaymentIntent {intent['id']} does not have a successful charge to refund.")
        charge = draft.find(intent["latest_charge"], charges.KIND)
    elif params.get("charge"):
        charge = draft.find(params["charge"], charges.KIND, "charge")
    else:
        raise StripeError.invalid("One of charge, payment_intent must be provided.", "parameter_missing", "charge")
    if charge["status"] != "succeeded" or not charge["captured"]:
        raise StripeError.invalid(f"Charge {charge['id']} has no captured money to refund.")
    return charge
