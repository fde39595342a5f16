"""PaymentIntents and their statuses."""

from collections.abc import Mapping
from typing import Any

from idem.testing.bank.stripe import charges
from idem.testing.bank.stripe.draft import Course, Draft
from idem.testing.bank.stripe.params import amount, currency, flag, metadata, number, rest
from idem.testing.bank.stripe.refusals import StripeError, declined

KIND = "payment_intent"
_OWN = ("amount", "currency", "metadata", "confirm", "capture_method", "payment_method", "return_url")
_ENDED = ("succeeded", "canceled")
_CONFIRMABLE = ("requires_payment_method", "requires_confirmation", "requires_action")


def create(draft: Draft, params: Mapping[str, Any]) -> None:
    """`POST /v1/payment_intents`.

    Raises:
        StripeError: a parameter is wrong, or (`confirm=true`) the card was declined.
    """
    method = params.get("payment_method")
    capture = params.get("capture_method", "automatic_async")
    if capture not in ("automatic", "automatic_async", "manual"):
        raise StripeError.invalid(f"Invalid capture_method: {capture}", None, "capture_method")
    asked = {"amount": amount(params), "currency": currency(params), "metadata": metadata(params)}
    confirmed = flag(params, "confirm")
    if confirmed:
        method = method or draft.account.stripe.default_method
    if confirmed and not method:
        _without_method()
    own = {
        "amount_capturable": 0,
        "amount_received": 0,
        "canceled_at": None,
        "cancellation_reason": None,
        "confirmation_method": "automatic",
        "description": None,
        "customer": None,
        "last_payment_error": None,
        "latest_charge": None,
        "next_action": None,
        "payment_method_types": ["card"],
        "capture_method": capture,
        "payment_method": method,
        "status": "requires_confirmation" if method else "requires_payment_method",
    }
    id = draft.make(KIND, "pi", {**own, **rest(params, _OWN), **asked}, "payment_intent.created")
    draft.change(id, {"client_secret": f"{id}_secret_{id[-10:]}"}, None)
    if confirmed:
        _confirm(draft, id, params)


def update(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/payment_intents/{id}`.

    Raises:
        StripeError: there is no such PaymentIntent, or it has ended.
    """
    intent = draft.take(id, KIND)
    patch: dict[str, Any] = {**rest(params, _OWN), "metadata": metadata(params, intent["metadata"])}
    if "amount" in params:
        if intent["status"] not in _CONFIRMABLE:
            _unexpected(intent, "updated")
        patch["amount"] = amount(params)
    if params.get("payment_method"):
        patch["payment_method"] = params["payment_method"]
        if intent["status"] == "requires_payment_method":
            patch["status"] = "requires_confirmation"
    draft.change(id, patch, None)


def confirm(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/payment_intents/{id}/confirm`.

    Raises:
        StripeError: there is no such PaymentIntent, its status does not allow it, or the card was declined.
    """
    intent = draft.take(id, KIND)
    if intent["status"] not in _CONFIRMABLE:
        _unexpected(intent, "confirmed")
    method = params.get("payment_method") or intent["payment_method"] or draft.account.stripe.default_method
    if not method:
        _without_method()
    draft.change(id, {"payment_method": method}, None, voids=True)
    _confirm(draft, id, params)


def capture(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/payment_intents/{id}/capture`.

    Raises:
        StripeError: there is no such PaymentIntent, nothing to capture, or less than was asked for.
    """
    intent = draft.take(id, KIND)
    if intent["status"] != "requires_capture":
        _unexpected(intent, "captured")
    taken = number(params, "amount_to_capture")
    taken = intent["amount_capturable"] if taken is None else taken
    if not 1 <= taken <= intent["amount_capturable"]:
        raise StripeError.invalid("The amount to capture is too large.", "amount_too_large", "amount_to_capture")
    charge = {"captured": True, "amount_captured": taken, "amount_refunded": intent["amount"] - taken}
    draft.change(intent["latest_charge"], charge, "charge.captured", root=id)
    patch = {"status": "succeeded", "amount_received": taken, "amount_capturable": 0}
    draft.change(id, patch, "payment_intent.succeeded")


def cancel(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/payment_intents/{id}/cancel`.

    Raises:
        StripeError: there is no such PaymentIntent, or it has ended, or is processing.
    """
    intent = draft.take(id, KIND)
    if intent["status"] in (*_ENDED, "processing"):
        _unexpected(intent, "canceled")
    patch = {
        "status": "canceled",
        "canceled_at": int(draft.at),
        "cancellation_reason": params.get("cancellation_reason"),
        "amount_capturable": 0,
        "next_action": None,
    }
    draft.change(id, patch, "payment_intent.canceled", voids=True)
    if intent["status"] == "requires_capture":
        refunded = {"refunded": True, "amount_refunded": intent["amount"]}
        draft.change(intent["latest_charge"], refunded, "charge.refunded", root=id)


def _confirm(draft: Draft, id: str, params: Mapping[str, Any]) -> None:
    intent = draft.view(id)
    course = draft.order(intent["payment_method"])
    match course.status:
        case "declined":
            charge = charges.make(draft, _of(intent), "failed", captured=False, root=id)
            error = _fail(draft, intent, charge, "card_declined")
            raise StripeError(402, {**error, "payment_intent": draft.view(id)}, executed=True)
        case "requires_action":
            action = {
                "type": "redirect_to_url",
                "redirect_to_url": {
                    "url": f"https://hooks.bank.example/redirect/authenticate/{id}",
                    "return_url": params.get("return_url"),
                },
            }
            draft.change(id, {"status": "requires_action", "next_action": action}, "payment_intent.requires_action")
            if course.becomes == "declined":
                _fail(draft, intent, None, "payment_intent_authentication_failure", after=course.seconds)
            elif course.becomes is not None:
                _succeed(draft, intent, after=course.seconds)
        case "processing":
            charge = charges.make(draft, _of(intent), "pending", captured=False, root=id)
            draft.change(id, {"status": "processing", "latest_charge": charge}, "payment_intent.processing")
            _end(draft, intent, charge, course)
        case _:
            _succeed(draft, intent)


def _end(draft: Draft, intent: Mapping[str, Any], charge: str, course: Course) -> None:
    charges.end(draft, charge, course.becomes != "declined", after=course.seconds, root=intent["id"])
    if course.becomes == "declined":
        _fail(draft, intent, charge, "card_declined", after=course.seconds)
    else:
        patch = {"status": "succeeded", "amount_received": intent["amount"], "next_action": None}
        draft.change(intent["id"], patch, "payment_intent.succeeded", after=course.seconds)


def _succeed(draft: Draft, intent: Mapping[str, Any], *, after: float | None = None) -> None:
    manual = intent["capture_method"] == "manual"
    id, amount = intent["id"], intent["amount"]
    charge = charges.make(draft, _of(intent), "succeeded", captured=not manual, root=id, after=after)
    patch: dict[str, Any] = {"latest_charge": charge, "next_action": None, "last_payment_error": None}
    if manual:
        patch.update(status="requires_capture", amount_capturable=amount)
        draft.change(id, patch, "payment_intent.amount_capturable_updated", after=after)
    else:
        patch.update(status="succeeded", amount_received=amount)
        draft.change(id, patch, "payment_intent.succeeded", after=after)


def _fail(
    draft: Draft, intent: Mapping[str, Any], charge: str | None, code: str, *, after: float | None = None
) -> dict[str, Any]:
    error = declined({} if charge is None else {"charge": charge}, code)
    patch = {
        "status": "requires_payment_method",
        "last_payment_error": error,
        "payment_method": None,
        "next_action": None,
        **({} if charge is None else {"latest_charge": charge}),
    }
    draft.change(intent["id"], patch, "payment_intent.payment_failed", after=after)
    return error


def _of(intent: Mapping[str, Any]) -> dict[str, Any]:
    """The members that a charge has from its PaymentIntent."""
    members = ("amount", "currency", "customer", "description", "metadata", "payment_method")
    return {"payment_intent": intent["id"], **{name: intent[name] for name in members}}


def _without_method() -> None:
    message = "You cannot confirm this PaymentIntent because it's missing a payment method."
    raise StripeError.invalid(message, "parameter_missing", "payment_method")


def _unexpected(intent: Mapping[str, Any], done: str) -> None:
    message = f"This PaymentIntent's status is {intent['status']}: it could not be {done}."
    refusal = StripeError.invalid(message, "payment_intent_unexpected_state", executed=True)
    raise StripeError(400, {**refusal.error, "payment_intent": dict(intent)}, executed=True)
