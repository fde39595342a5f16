"""The objects and events of a Stripe-like account, read from the bank's log, for tests."""

import math
from typing import Any

from idem.testing.bank.log import Log
from idem.testing.bank.records import Changed
from idem.testing.bank.stripe.objects import StripeObjects


def stripe_objects(log: Log, kind: str, *, account: str | None = None, at: float = math.inf) -> list[dict[str, Any]]:
    """All objects of a kind (`payment_intent`, `refund`), oldest first, as they are at that moment of the bank's clock:
    by default in the end, when all that is to come by itself has come."""
    register = StripeObjects(log.changes)
    accounts = dict.fromkeys(each.account for each in log.changes if account in (None, each.account))
    return [each for name in accounts for each in list(register.newest(name, kind, at, at))[::-1]]


def stripe_events(log: Log, *, account: str | None = None, at: float = math.inf) -> list[Changed]:
    """All changes with an event until that moment, in their order; what was called off is not among them."""
    register = StripeObjects(log.changes)
    accounts = dict.fromkeys(each.account for each in log.changes if account in (None, each.account))
    return [each for name in accounts for each in register.events(name, 0, at)[::-1]]
