"""The GET routes of a Stripe-like account."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from idem.testing.bank.answers import BankAnswer, encoded
from idem.testing.bank.order import BankOrder
from idem.testing.bank.settings import BankAccount
from idem.testing.bank.stripe.events import event
from idem.testing.bank.stripe.expanding import expanded
from idem.testing.bank.stripe.forms import form
from idem.testing.bank.stripe.lists import events_listed, listed
from idem.testing.bank.stripe.objects import StripeObjects
from idem.testing.bank.stripe.other_objects import NAMESPACES, kind_of
from idem.testing.bank.stripe.refusals import StripeError


def read(order: BankOrder, account: BankAccount, register: StripeObjects, now: float) -> BankAnswer:
    """The current object or list.

    Raises:
        StripeError: there is no such object, or the query is invalid.
    """
    try:
        query = form(urlsplit(order.incoming.target).query)
    except ValueError as error:
        raise StripeError.invalid(str(error)) from None
    words = order.path.strip("/").split("/")
    if words[0] != "v1" or len(words) < 2 or not all(words):
        raise StripeError.no_such_place("GET", order.path)

    def get(id: str) -> dict[str, Any] | None:
        return register.get(account.name, id, now)

    return BankAnswer(200, encoded(expanded(_read(words[1:], order.path, query, account, register, now), query, get)))


def _read(
    words: list[str], path: str, query: Mapping[str, Any], account: BankAccount, register: StripeObjects, now: float
) -> dict[str, Any]:
    name, stripe = account.name, account.stripe
    if words[0] == "events":
        visible = register.events(name, now - stripe.events_kept, now - stripe.events_lag)
        if len(words) == 1:
            return events_listed(query, visible, lambda change: event(register, account, change))
        for change in visible:
            if change.id == words[1]:
                return event(register, account, change)
        raise StripeError.missing("event", words[1], "id")
    if words == ["account"]:
        return {"id": f"acct_{name}", "object": "account"}
    shown = register.get(name, words[-1], now) if len(words) > 1 else None
    if shown is not None and shown["object"] == kind_of("/".join(words[:-1])):
        return shown
    if len(words) > (2 if words[0] in NAMESPACES else 1):
        raise StripeError.missing(kind_of("/".join(words[:-1])), words[-1], "id")
    kind = kind_of("/".join(words))
    found = register.newest(name, kind, now, now - account.lookup_lag)
    return listed(kind, path, query, found, lambda id: register.get(name, id, now))
