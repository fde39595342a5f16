"""The bank in the likeness of a provider: what it says is what the provider's own contract reads."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import httpx
import pytest
from fix_spine import BY_ID, ERRORS, KEYED, KEYLESS, OUTCOME, lookup

from idem.outbox.domain.contract import Account, FrozenRequest, KeyRule, ProviderRequest, Response
from idem.outbox.providers.errors import ErrorShape
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.lookups import ByKey, ByReference
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says, statuses
from idem.outbox.providers.template import KEY_TEXT
from idem.outbox.values import json_pointer
from idem.outcomes import Absent, Ambiguous, LookupOutcome, NotExecuted, Outcome, Pending, Refused, Succeeded
from idem.sending import Question
from idem.testing.likeness import NoLikeness, account_like
from idem.testing.scripted import ScriptedBank

P = json_pointer.parse
ACCOUNTS = {"main": Account("main", "https://example.org")}

NESTED_PLACES = RulePlaces(
    reference=P("/data/0/id"), status=P("/data/0/attributes/state"), fields={"url": P("/data/0/link")}
)
NESTED = HttpProvider(
    replace(KEYED, provider="nested", key=KeyRule("body", "request_id", "current", retention=86400, margin=180)),
    ACCOUNTS,
    (
        Rule(Says.FINAL, statuses(200), (Condition(P("/data/0/attributes/state"), ("done", "ok")),),
             places=NESTED_PLACES),
        Rule(Says.ANSWER, body=(Condition(P("/data/0/attributes/state"), ("action",)), Condition(P("/data/0/next"))),
             places=NESTED_PLACES),
        Rule(Says.PENDING, statuses(202), (Condition(P("/data/0/attributes/state"), ("queued",)),),
             places=NESTED_PLACES),
        Rule(Says.REFUSED, statuses(200), (Condition(P("/data/0/attributes/state"), ("no",)),), places=NESTED_PLACES),
        Rule(Says.ABSENT, statuses(200), (Condition(P("/found"), (False,)),)),
    ),
    ErrorShape(shape="/errors", code="/errors/0/code", message="/errors/0/title"),
    (ByKey(path="/q/{idem.key}/state", match="/request_id"),),
)  # fmt: skip
BARE = HttpProvider(
    replace(KEYLESS, provider="bare"),
    ACCOUNTS,
    (Rule(Says.FINAL, statuses("2xx"), (Condition(P("/ok"), (True,)),), places=RulePlaces(reference=P("/nr"))),),
    ErrorShape(shape="/error"),
    (ByReference(path="/all?ref={idem.key}", object="/items/0", match="/note", absent=[404, 410]),),
)  # fmt: skip
PROVIDERS = {
    "keyed": HttpProvider(KEYED, ACCOUNTS, OUTCOME, ERRORS, (BY_ID, lookup("key"))),
    "keyless": HttpProvider(KEYLESS, ACCOUNTS, OUTCOME, ERRORS, (BY_ID, lookup("reference"))),
    "nested": NESTED,
    "bare": BARE,
}


class Played:
    """A provider, and the bank in its likeness."""

    def __init__(self, provider: HttpProvider, bank: ScriptedBank) -> None:
        self.provider, self.bank = provider, bank
        bank.add_account(account_like(provider.contract.provider, provider, "secret"))

    def order(self, key: str) -> Outcome:
        body = {"reference": KEY_TEXT, "note": KEY_TEXT, "amount": "12.50"}
        return self.provider.classify(
            self.ask(self.provider.freeze(ProviderRequest("PUT", "/v1/things", json=body), key))
        )[0]

    def lookups(self, key: str, reference: str | None = None) -> list[LookupOutcome]:
        question = Question(key, reference, awaiting=False)
        return [
            self.provider.read_lookup(self.ask(each), question, each)[0] for each in self.provider.questions(question)
        ]

    def ask(self, request: FrozenRequest) -> Response:
        headers = {**request.headers, "authorization": "Bearer secret"}
        found = httpx.request(request.method, self.bank.url + request.path, headers=headers, content=request.body)
        return Response(found.status_code, dict(found.headers), found.content)


@pytest.fixture(params=list(PROVIDERS))
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    with ScriptedBank().in_thread() as bank:
        yield Played(PROVIDERS[request.param], bank)


def test_an_order_succeeds_and_is_found(played: Played):
    key = str(uuid4())
    assert set(map(type, played.lookups(key))) == {Absent}
    made = played.order(key)
    (payment,) = played.bank.payments
    assert isinstance(made, Succeeded) and made.reference == payment.id
    found = played.lookups(key, made.reference)
    assert found and all(isinstance(each, Succeeded) and each.reference == payment.id for each in found), found
    assert set(map(type, played.lookups(str(uuid4())))) == {Absent}


def test_its_answers_carry_the_header_of_the_providers_own():
    carrying = replace(NESTED.contract, answers_carry="Acme-Request-Id")
    with ScriptedBank().in_thread() as bank:
        played = Played(replace(NESTED, contract=carrying), bank)
        asked = played.ask(played.provider.freeze(ProviderRequest("PUT", "/v1/things", json={"amount": "1"}), "k1"))
        assert carrying.own(asked).complete


def test_a_decline_is_a_refusal(played: Played):
    played.bank.decline()
    assert isinstance(played.order(str(uuid4())), Refused)
    assert played.bank.charges == []


def test_an_error_has_the_providers_shape(played: Played):
    played.bank.refuse_request()
    assert played.order("k1") == NotExecuted("request")
    played.bank.unauthorized()
    assert played.order("k1") == NotExecuted("config")
    played.bank.unavailable()
    assert played.order("k1") == Ambiguous()
    assert played.bank.payments == []


def test_what_its_provider_works_on_comes_to_its_end(played: Played):
    if not any(rule.says is Says.PENDING for rule in played.provider.outcome):
        pytest.skip("it knows no pending")
    played.bank.accept_and_work(3600)
    made = played.order("k1")
    assert isinstance(made, Pending)
    assert any(isinstance(each, Pending) for each in played.lookups("k1", made.reference))
    played.bank.shift_clock(3601)
    assert any(isinstance(each, Succeeded) for each in played.lookups("k1", made.reference))


def test_a_replay_is_what_the_contract_promises(played: Played):
    first, second = played.order("k1"), played.order("k1")
    made = len(played.bank.payments)
    assert (first == second, made) == ((True, 1) if played.provider.contract.replays else (False, 2))


def test_a_customer_must_act():
    with ScriptedBank().in_thread() as bank:
        nested = Played(NESTED, bank)
        bank.require_action(3600)
        made = nested.order("k1")
        assert isinstance(made, Succeeded) and made.status == "action" and made.fields == {"url": "test_url"}
        bank.shift_clock(3601)
        again = nested.order("k1")
        assert isinstance(again, Succeeded) and again.status == "done"


def test_a_contract_without_success_has_no_likeness():
    with pytest.raises(NoLikeness, match=r"providers\.x: the bank found no answer"):
        account_like("x", replace(BARE, outcome=()), "secret")
