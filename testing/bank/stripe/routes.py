"""The POST and DELETE routes of a Stripe-like account."""

from collections.abc import Mapping
from typing import Any

from idem.testing.bank.answers import BankAnswer, encoded
from idem.testing.bank.stripe import charges, money_back, payment_intents, things
from idem.testing.bank.stripe.draft import Draft
from idem.testing.bank.stripe.expanding import expanded
from idem.testing.bank.stripe.refusals import StripeError


def write(draft: Draft, method: str, path: str, params: Mapping[str, Any]) -> BankAnswer:
    """Draw the changes up; the answer if all goes well.

    Raises:
        Refusal: it does not; what `draft` has until then stands if the refusal is `executed`.
    """
    match path.strip("/").split("/"):
        case ["v1", *words] if words and all(words):
            id = _posted(draft, words, params) if method == "POST" else _deleted(draft, method, path, words)
        case _:
            raise StripeError.no_such_place(method, path)
    shown = draft.view(id)
    if shown.get("deleted"):
        return BankAnswer(200, encoded({"id": id, "object": shown["object"], "deleted": True}))
    return BankAnswer(200, encoded(expanded(shown, params, draft.view_or_none)))


def _posted(draft: Draft, words: list[str], params: Mapping[str, Any]) -> str:
    match words:
        case ["payment_intents"]:
            return payment_intents.create(draft, params)
        case ["payment_intents", id]:
            return payment_intents.update(draft, id, params)
        case ["payment_intents", id, "confirm"]:
            return payment_intents.confirm(draft, id, params)
        case ["payment_intents", id, "capture"]:
            return payment_intents.capture(draft, id, params)
        case ["payment_intents", id, "cancel"]:
            return payment_intents.cancel(draft, id, params)
        case ["charges"]:
            return charges.create(draft, params)
        case ["charges", id, "capture"]:
            return charges.capture(draft, id, params)
        case ["refunds"]:
            return money_back.refund(draft, params)
        case ["payouts"]:
            return money_back.payout(draft, params)
        case ["refunds", id, "cancel"]:
            return money_back.cancel(draft, money_back.REFUND, id)
        case ["payouts", id, "cancel"]:
            return money_back.cancel(draft, money_back.PAYOUT, id)
    for place, word in enumerate(words):
        # What stands before the id is the collection.
        if place and draft.view_or_none(word) is not None:
            collection, rest = "/".join(words[:place]), words[place + 1 :]
            if not rest:
                return things.update(draft, collection, word, params)
            return things.act(draft, collection, word, "_".join(rest), params)
    if len(words) > (2 if words[0] in things.NAMESPACES else 1):
        raise StripeError.missing(things.kind_of(words[0]), words[-1], "id")
    return things.create(draft, "/".join(words), params)


def _deleted(draft: Draft, method: str, path: str, words: list[str]) -> str:
    if method != "DELETE" or len(words) < 2:
        raise StripeError.no_such_place(method, path)
    return things.delete(draft, "/".join(words[:-1]), words[-1])
