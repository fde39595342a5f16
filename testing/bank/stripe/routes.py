"""The POST and DELETE routes of a Stripe-like account."""

from collections.abc import Callable, Mapping
from typing import Any

from idem.testing.bank.answers import BankAnswer, encoded
from idem.testing.bank.stripe import charges, other_objects, payment_intents, refunds
from idem.testing.bank.stripe.draft import Draft
from idem.testing.bank.stripe.expanding import expanded
from idem.testing.bank.stripe.refusals import StripeError

_CREATE: Mapping[str, Callable[[Draft, Mapping[str, Any]], None]] = {
    "payment_intents": payment_intents.create,
    "charges": charges.create,
    "refunds": refunds.refund,
    "payouts": refunds.payout,
}
_ACT: Mapping[tuple[str, str], Callable[[Draft, str, Mapping[str, Any]], None]] = {
    ("payment_intents", ""): payment_intents.update,
    ("payment_intents", "confirm"): payment_intents.confirm,
    ("payment_intents", "capture"): payment_intents.capture,
    ("payment_intents", "cancel"): payment_intents.cancel,
    ("charges", "capture"): charges.capture,
    ("refunds", "cancel"): refunds.cancel_refund,
    ("payouts", "cancel"): refunds.cancel_payout,
}


def write(draft: Draft, method: str, path: str, params: Mapping[str, Any]) -> BankAnswer:
    """Make the changes of a request in `draft`; returns the answer if all goes well.

    Raises:
        StripeError: something is wrong; if it is `executed`, the changes already in `draft` count.
    """
    version, *words = path.strip("/").split("/")
    if version != "v1" or not words or not all(words) or (method != "POST" and (method != "DELETE" or len(words) < 2)):
        raise StripeError.no_such_place(method, path)
    if method == "POST":
        _posted(draft, words, params)
    else:
        other_objects.delete(draft, "/".join(words[:-1]), words[-1])
    assert draft.made is not None
    shown = draft.view(draft.made)
    if shown.get("deleted"):
        return BankAnswer(200, encoded({"id": draft.made, "object": shown["object"], "deleted": True}))
    return BankAnswer(200, encoded(expanded(shown, params, draft.view_or_none)))


def _posted(draft: Draft, words: list[str], params: Mapping[str, Any]) -> None:
    collection, *more = words
    if not more and collection in _CREATE:
        return _CREATE[collection](draft, params)
    if len(more) in (1, 2) and (act := _ACT.get((collection, "".join(more[1:])))):
        return act(draft, more[0], params)
    for place, word in enumerate(words):
        # The words before the id are the collection.
        if place and draft.view_or_none(word) is not None:
            collection, rest = "/".join(words[:place]), words[place + 1 :]
            if not rest:
                return other_objects.update(draft, collection, word, params)
            return other_objects.act(draft, collection, word, "_".join(rest))
    if len(words) > (2 if words[0] in other_objects.NAMESPACES else 1):
        raise StripeError.missing(other_objects.kind_of(words[0]), words[-1], "id")
    return other_objects.create(draft, "/".join(words), params)
