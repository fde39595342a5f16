"""What idem.toml says of statuses and codes: in short, or rule by rule, it is the same to the answers."""

from typing import Any

import pytest
from providers.fix_bank import answered, error

from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.outcome_rules import Says
from idem.outcomes import Absent, Ambiguous, CouldNotAsk, NotExecuted, Outcome, Pending, Refused, Succeeded
from idem.sending import Question

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
SAID: dict[str, Any] = {
    "key": {"carrier": "header", "name": "Idempotency-Key", "replay": "stored", "retention": "24h"},
    "errors": {
        "shape": "/error/type",
        "code": "/error/code",
        "message": "/error/message",
        "reference": "/error/object/id",
        "codes": {
            "refused": ["card_declined", "704"],
            "not_executed:throttled": ["rate_limit", "lock_timeout"],
            "not_executed:config": ["api_key_expired"],
            "not_executed:request": ["amount_too_small"],
            "final": ["already_paid"],
            "ambiguous": ["in_use"],
            "ambiguous:cached": ["api_error"],
            "absent": ["resource_missing"],
        },
    },
    "object": {
        "reference": "/id",
        "status": "/status",
        "statuses": {
            "final": ["succeeded", "paid"],
            "answer": ["requires_action"],
            "pending": ["processing", 2],
            "refused": ["canceled", False],
            "later_fact": ["refunded"],
        },
    },
    "lookup": {"by_key": {"path": "/payments?key={idem.key}", "match": "/key"}},
    "accounts": {"main": {"origin": "https://bank.example"}},
}


def provider(**changes: Any) -> HttpProvider:
    made = ProviderSettings.model_validate({**SAID, **changes}).build("bank", {})
    assert isinstance(made, HttpProvider)
    return made


BANK = provider()


def failed(code: object, **more: Any) -> dict[str, Any]:
    return {"error": {"type": "t", "code": code, "message": "No.", **more}}


def outcome(status: int, body: object, bank: HttpProvider = BANK, **headers: str) -> Outcome:
    return bank.classify(answered(status, body, **headers))[0]


@pytest.mark.parametrize(
    ("status", "meant"),
    [
        *((word, Succeeded("pay_1", word)) for word in ("succeeded", "paid")),
        ("requires_action", Succeeded("pay_1", "requires_action", interim=True)),
        ("processing", Pending("pay_1", "processing")),
        (2, Pending("pay_1", "2")),
        (2.0, Pending("pay_1", None)),
        ("canceled", Refused("pay_1", "canceled")),
        (False, Refused("pay_1", "false")),
        *((status, Ambiguous()) for status in ("2", 0, "new_word", None)),
    ],
)
def test_each_status_means_what_its_list_says(status: object, meant: Outcome) -> None:
    assert outcome(201, {"id": "pay_1", "status": status}) == meant


def test_a_status_says_nothing_in_an_error() -> None:
    """Outside 2xx only a refusal shows in the object itself; the effect is never proven by it."""
    assert outcome(500, {"id": "pay_1", "status": "succeeded"}) == Ambiguous()
    assert outcome(402, {"id": "pay_1", "status": "canceled"}) == Refused("pay_1", "canceled")


def test_a_later_fact_concludes_nothing_in_an_answer_or_a_look() -> None:
    refunded = {"id": "pay_1", "status": "refunded", "key": KEY}
    assert outcome(200, refunded) == Ambiguous()
    assert BANK.read_lookup(answered(200, refunded), Question(KEY, None, awaiting=False))[0] == CouldNotAsk()


def test_a_later_fact_leaves_the_word_to_the_rules_behind_it() -> None:
    """An object that was refunded existed: events tell the refund, a look that it was paid."""
    rules = [{"says": "later_fact", "when": {"/refunded": True}}, {"says": "final", "when": {"/status": ["succeeded"]}}]
    bank = provider(outcome=rules)
    shown = {"id": "pay_1", "status": "succeeded", "refunded": True, "key": KEY}
    assert outcome(200, shown, bank) == Succeeded("pay_1", "succeeded")
    look = bank.read_lookup(answered(200, shown), Question(KEY, None, awaiting=False))[0]
    assert look == Succeeded("pay_1", "succeeded")


@pytest.mark.parametrize("status", [400, 402, 409, 429, 500, 503])
@pytest.mark.parametrize(
    ("code", "meant"),
    [
        *((code, Refused(None, None, {"code": code, "message": "No."})) for code in ("card_declined", "704", 704)),
        *((code, NotExecuted("throttled", 7.0)) for code in ("rate_limit", "lock_timeout")),
        ("api_key_expired", NotExecuted("config")),
        ("amount_too_small", NotExecuted("request")),
        ("in_use", Ambiguous()),
        ("api_error", Ambiguous(cached=True)),
    ],
)
def test_each_code_means_what_its_list_says_whatever_the_status(status: int, code: object, meant: Outcome) -> None:
    assert outcome(status, failed(code), retry_after="7") == meant


@pytest.mark.parametrize(
    ("status", "body", "meant"),
    [
        (400, {"error": {"code": "card_declined"}}, NotExecuted("config")),
        (400, {"code": "card_declined"}, NotExecuted("config")),
        (500, {"error": {"code": "rate_limit"}}, Ambiguous()),
        (500, {"error": {"code": "api_error"}}, Ambiguous()),
        (200, failed("card_declined"), Ambiguous()),
        (302, failed("rate_limit"), Ambiguous()),
        (400, failed("card_decline"), NotExecuted("request")),
        (402, failed("unheard_of"), Refused(None, None, {"code": "unheard_of", "message": "No."})),
    ],
)
def test_hazard_4_a_code_counts_in_the_providers_own_error_shape_alone(
    status: int, body: object, meant: Outcome
) -> None:
    assert outcome(status, body) == meant


def test_a_code_that_proves_the_effect_must_name_the_object() -> None:
    assert outcome(409, failed("already_paid", object={"id": "pay_9"})) == Succeeded("pay_9")
    assert outcome(409, failed("already_paid")) == Ambiguous()


def test_a_code_of_absence_counts_in_a_look_alone() -> None:
    question = Question(KEY, None, awaiting=False)
    assert BANK.read_lookup(answered(404, failed("resource_missing")), question)[0] == Absent()
    assert outcome(404, failed("resource_missing")) == NotExecuted("request")


def test_explicit_rules_come_first_then_codes_then_statuses() -> None:
    rules = [
        {"says": "ambiguous", "status": "4xx", "when": {"/error/code": "card_declined"}},
        {"says": "pending", "when": {"/status": "succeeded"}},
    ]
    bank = provider(outcome=rules)
    assert outcome(402, failed("card_declined"), bank) == Ambiguous()
    assert outcome(200, {"id": "pay_1", "status": "succeeded"}, bank) == Pending("pay_1", "succeeded")
    assert outcome(402, failed("704"), bank) == Refused(None, None, {"code": "704", "message": "No."})
    assert [rule.says for rule in bank.outcome[:3]] == [Says.AMBIGUOUS, Says.PENDING, Says.REFUSED]
    assert [rule.says for rule in bank.outcome[-2:]] == [Says.REFUSED, Says.LATER_FACT]


def test_what_the_statuses_say_is_known_to_the_contract() -> None:
    assert BANK.contract.answers
    assert not provider(object={"status": "/s", "statuses": {"final": ["x"]}}).contract.answers


@pytest.mark.parametrize(
    ("body", "headers", "cached"),
    [
        (failed("any"), {}, True),
        (b"<html>", {"Idempotent-Replayed": "true"}, False),
        (b"<html>", {}, False),
        ({"error": "text"}, {}, False),
    ],
)
def test_a_failure_is_cached_only_if_the_provider_itself_says_it(
    body: object, headers: dict[str, str], cached: bool
) -> None:
    """What a proxy answers is stored nowhere, and a replay may still settle it."""
    bank = provider(outcome=[{"says": "ambiguous:cached", "status": "5xx"}])
    assert bank.classify(answered(500, body, **headers))[0] == Ambiguous(cached=cached)


def test_a_header_can_say_that_a_failure_is_cached() -> None:
    rule = {"says": "ambiguous:cached", "status": "5xx", "headers": {"Idempotent-Replayed": "true"}}
    bank = provider(outcome=[rule])
    assert outcome(500, b"", bank, Idempotent_Replayed="true") == Ambiguous(cached=True)
    assert outcome(500, failed("any"), bank) == Ambiguous()
    assert bank.classify(answered(500, b"", complete=False, Idempotent_Replayed="true"))[0] == Ambiguous()
    missing = provider(outcome=[{**rule, "headers": {"Via": {"exists": False}}}])
    assert outcome(500, b"<html>", missing) == Ambiguous()


def test_errors_that_look_in_several_ways() -> None:
    """PayPal: the issue where there is one, else the name."""
    bank = provider(
        errors={
            "shape": ["/name", "/error"],
            "code": ["/details/0/issue", "/name", "/error"],
            "message": ["/details/0/description", "/message", "/error_description"],
            "codes": {"refused": ["INSTRUMENT_DECLINED"], "not_executed:config": ["AUTH", "invalid_client"]},
        }
    )
    declined = {"name": "AUTH", "details": [{"issue": "INSTRUMENT_DECLINED", "description": "Declined."}]}
    assert outcome(422, declined, bank) == Refused(None, None, {"code": "INSTRUMENT_DECLINED", "message": "Declined."})
    other = {"name": "AUTH", "details": [{"issue": "OTHER"}]}
    assert bank.classify(answered(422, other))[1].code == "OTHER"
    assert outcome(422, other, bank) == NotExecuted("request")
    assert outcome(422, {"name": "AUTH", "message": "No."}, bank) == NotExecuted("config")
    assert outcome(500, {"error": "invalid_client"}, bank) == NotExecuted("config")
    assert outcome(422, error("INSTRUMENT_DECLINED"), bank) == NotExecuted("request")
    assert outcome(422, {"message": "INSTRUMENT_DECLINED"}, bank) == NotExecuted("config")
