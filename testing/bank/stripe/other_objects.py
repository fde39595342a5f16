"""All other objects, stored as requested."""

from collections.abc import Mapping
from typing import Any

from idem.testing.bank.order import FAULT_MEMBER
from idem.testing.bank.stripe.draft import Draft
from idem.testing.bank.stripe.params import metadata, number, rest
from idem.testing.bank.stripe.refusals import StripeError, declined

_PREFIXES = {
    "customer": "cus",
    "payment_method": "pm",
    "setup_intent": "seti",
    "transfer": "tr",
    "invoice": "in",
    "product": "prod",
    "subscription": "sub",
    "checkout.session": "cs_test",
}


# First words of paths that have a collection after them: `/v1/checkout/sessions`.
NAMESPACES = frozenset(
    {
        *("apps", "billing", "billing_portal", "checkout", "climate", "entitlements", "financial_connections"),
        *("forwarding", "identity", "issuing", "radar", "reporting", "sigma", "tax", "terminal", "test_helpers"),
        "treasury",
    }
)


def kind_of(collection: str) -> str:
    """`checkout/sessions` → `checkout.session`."""
    words = collection.replace("/", ".")
    for ending, single in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if words.endswith(ending):
            return words.removesuffix(ending) + single
    return words


def create(draft: Draft, collection: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/{collection}`.

    Raises:
        StripeError: the metadata are invalid, or the fault is `decline`.
    """
    kind = kind_of(collection)
    course = draft.order()
    members = {**rest(params, ("metadata", FAULT_MEMBER)), "metadata": metadata(params)}
    if "amount" in members:
        members["amount"] = number(params, "amount")
    if course.status == "declined":
        raise StripeError(402, declined({}), executed=True)
    if course.becomes is not None:
        members["status"] = "pending" if course.status == "processing" else course.status
    id = draft.make(kind, _PREFIXES.get(kind, kind.rpartition(".")[2][:4]), members, f"{kind}.created")
    if course.becomes is not None:
        end = "failed" if course.becomes == "declined" else course.becomes
        draft.change(id, {"status": end}, f"{kind}.{end}", after=course.seconds)


def update(draft: Draft, collection: str, id: str, params: Mapping[str, Any]) -> None:
    """`POST /v1/{collection}/{id}`.

    Raises:
        StripeError: there is no such object.
    """
    kind = kind_of(collection)
    found = draft.take(id, kind)
    patch = {**rest(params, ("metadata", FAULT_MEMBER)), "metadata": metadata(params, found["metadata"])}
    draft.change(id, patch, f"{kind}.updated")


def act(draft: Draft, collection: str, id: str, action: str) -> None:
    """`POST /v1/{collection}/{id}/{action}`: an event records the action.

    Raises:
        StripeError: there is no such object.
    """
    kind = kind_of(collection)
    draft.take(id, kind)
    draft.change(id, {}, f"{kind}.{action}")


def delete(draft: Draft, collection: str, id: str) -> None:
    """`DELETE /v1/{collection}/{id}`.

    Raises:
        StripeError: there is no such object.
    """
    kind = kind_of(collection)
    draft.take(id, kind)
    draft.change(id, {"deleted": True}, f"{kind}.deleted")
