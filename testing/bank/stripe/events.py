"""Events: the form of a change in `GET /v1/events` and in a webhook."""

from typing import Any

from idem.testing.bank.records import Changed
from idem.testing.bank.settings import BankAccount
from idem.testing.bank.stripe.objects import StripeObjects


def event(register: StripeObjects, account: BankAccount, change: Changed) -> dict[str, Any]:
    """The event of a change, which must have one."""
    shown, before = register.as_event(change)
    return {
        "id": change.id,
        "object": "event",
        "api_version": account.stripe.version,
        "created": int(change.at),
        "data": {"object": shown, **({"previous_attributes": before} if before else {})},
        "livemode": False,
        "pending_webhooks": 0 if account.webhook_url is None else 1,
        "request": {
            "id": None if change.automatic else request_id(change.request),
            "idempotency_key": change.key,
        },
        "type": change.type,
    }


def request_id(number: int) -> str:
    """The `Request-Id` of the bank's request of this number."""
    return f"req_{number:014d}"
