"""The bank imitates a provider: an account whose answers follow the provider's contract."""

import re
import time
from collections.abc import Iterator, Mapping

from idem.outbox.domain.contract import Response
from idem.outbox.domain.outcomes import Outcome, Pending, Refused, Succeeded
from idem.outbox.domain.provider import Provider, Question
from idem.outbox.providers.errors import DECLINED, ErrorShape
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.lookups import Lookup
from idem.outbox.providers.outcome_rules import Rule, Says
from idem.outbox.values.json_pointer import Tokens
from idem.testing.bank import BankAccount, BankApi, BankLookup, BankShape, SecondRequest, StatusWords, StripeSettings

WORDS: Mapping[str, tuple[tuple[Says, ...], type[Outcome]]] = {
    "succeeded": ((Says.FINAL, Says.ANSWER), Succeeded),
    "declined": ((Says.REFUSED,), Refused),
    "processing": ((Says.PENDING,), Pending),
    "requires_action": ((Says.ANSWER,), Succeeded),
}
"""The bank's statuses, with the rules that read them."""

EVENTS = "/v1/events"

KEY, REFERENCE = "idem-lab-key", "idem-lab-reference"
"""The key and the reference of a sample question, to find their places in its request."""


class NoLikeness(Exception):
    """The contract has no answer that means success, or is not declarative; the text says what to do."""


def account_like(name: str, provider: Provider, token: str) -> BankAccount:
    """An account of the bank that answers orders and look-ups of this provider in a form that its contract can read.

    For a provider with code of its own the bank answers in its own form. Raises NoLikeness if the contract does not
    read that as success either.
    """
    contract = provider.contract
    if isinstance(provider, HttpProvider) and _speaks_stripe(provider):
        # The lab also asks for its events and its account, and the bank imitates that whole API.
        stripe = StripeSettings(default_method="pm_card_visa")
        return BankAccount(name, token, retention=contract.key.retention or None, api=BankApi.STRIPE, stripe=stripe)
    shape = _shape(provider) if isinstance(provider, HttpProvider) else BankShape.own()
    if not isinstance(_read(provider, shape, "succeeded"), Succeeded):
        raise NoLikeness(
            f"providers.{name}: the bank found no answer that this contract reads as success. Add an `outcome` rule "
            'that says "final" (or "answer") by members of a JSON body'
        )
    carrier = contract.key.carrier
    return BankAccount(
        name,
        token,
        replay=SecondRequest(contract.key.replay if carrier != "none" else "none"),
        retention=contract.key.retention or None,
        key_header=contract.key.name if carrier == "header" else None,
        key_field=contract.key.name if carrier == "body" else None,
        shape=shape,
        answers_carry=contract.answers_carry,
    )


def _speaks_stripe(provider: HttpProvider) -> bool:
    """Whether a contract has Stripe's form bodies and asks Stripe's list of events, like `kind = "stripe"`."""
    events = provider.event_lookup
    if provider.encoding != "form" or events is None:
        return False
    now = time.time()
    question = Question(KEY, None, False, now, "POST", "/v1/payment_intents", asked_at=now)
    request = events.request(question)
    return request is not None and request.path.startswith(EVENTS)


def _shape(provider: HttpProvider) -> BankShape:
    errors = _errors(provider.errors)
    says: dict[str, StatusWords] = {}
    for status, (wanted, kind) in WORDS.items():
        for said in _candidates(provider, wanted):
            if isinstance(_read(provider, BankShape({status: said}, errors), status), kind):
                says[status] = said
                break
    return BankShape(says, errors, tuple(filter(None, (_bank_lookup(provider, lookup) for lookup in provider.lookups))))


def _errors(errors: ErrorShape) -> dict[str, Tokens]:
    places = {"code": next(iter(errors.code), None), "message": next(iter(errors.message), None)}
    shape = next(iter(errors.shape), None)
    if shape is not None and not any(at is not None and at[: len(shape)] == shape for at in places.values()):
        # No other member would create the object by which the contract recognises errors.
        places["type"] = shape
    return {member: at for member, at in places.items() if at}


def _candidates(provider: HttpProvider, wanted: tuple[Says, ...]) -> Iterator[StatusWords]:
    for says in wanted:
        for rule in provider.outcome:
            if rule.says is says:
                yield _said(provider, rule)
    if Says.REFUSED in wanted:
        at = provider.errors.reference
        yield StatusWords(DECLINED, id_at=() if not at else (at,))


def _said(provider: HttpProvider, rule: Rule) -> StatusWords:
    places = rule.places
    members = [(each.at, each.values[0]) for each in rule.body if each.values]
    named: list[tuple[Tokens, object]] = [(each.at, True) for each in rule.body if not each.values and each.exists]
    named += [(at, f"test_{name}") for name, at in places.fields.items()]
    id_at = [at for at in (places.reference, provider.errors.reference if rule.says is Says.REFUSED else None) if at]
    preferred = (402, 201, 200) if rule.says is Says.REFUSED else (201, 200, 202)
    http = next((each for each in preferred if each in rule.status), min(rule.status))
    return StatusWords(http, tuple(members), tuple(id_at), tuple(named))


def _read(provider: Provider, shape: BankShape, status: str) -> Outcome:
    """How the contract reads the bank's answer to an order in this status."""
    own = {"id": "pay_1", "object": "payment", "status": status, "amount": 1, "currency": "eur", "created": 1.0}
    answer = shape.made(own, {}, "pay_1", 201)
    headers = {"content-type": "application/json"}
    return provider.classify(Response(answer.status, headers, answer.body))[0]


def _bank_lookup(provider: HttpProvider, lookup: Lookup) -> BankLookup | None:
    request = lookup.request(Question(KEY, REFERENCE, awaiting=False))
    if request is None:
        return None
    target = re.escape(request.path).replace(re.escape(KEY), "([^&/?]+)").replace(re.escape(REFERENCE), "([^&/?]+)")
    return BankLookup(target, lookup.object, lookup.match, _nothing(provider, lookup))


def _nothing(provider: HttpProvider, lookup: Lookup) -> StatusWords:
    if lookup.empty is not None:
        return StatusWords(200, ((lookup.empty, []),))
    if nothing := lookup.nothing:
        return StatusWords(404 if 404 in nothing else min(nothing))
    for rule in provider.outcome:
        if rule.says is Says.ABSENT and rule.recognises:
            return _said(provider, rule)
    return StatusWords(404)
