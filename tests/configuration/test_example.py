"""The example installation: what it is made into."""

import json
from pathlib import Path

import pytest

from idem.errors import ParamsInvalid, Unrenderable
from idem.outbox.config import Configuration, explain, load
from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outcomes import Absent, Ambiguous, NotExecuted, Pending, Refused, Succeeded
from idem.sending import Question

EXAMPLE = Path(__file__).with_name("idem.toml")
ENV = {
    "BANK_TOKEN": "main-token",
    "BANK_TOKEN_SECOND": "second-token",
    "BANK_API_KEY": "api-key",
    "OLDBANK_TOKEN": "Basic b2xk",
}
KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
PAYMENT = {"amount": 1250, "currency": "eur", "order": "A/7"}


@pytest.fixture
def example() -> Configuration:
    return load(EXAMPLE, ENV)


def answered(status: int, body: object) -> Response:
    return Response(status, {}, json.dumps(body).encode())


def test_it_has_no_findings(example: Configuration) -> None:
    # The dates of the example grow old.
    assert [each for each in explain(EXAMPLE, ENV) if not each.where.endswith(".verified")] == []
    assert [each for each in example.warnings if not each.where.endswith(".verified")] == []


def test_accounts_and_their_credentials(example: Configuration) -> None:
    main, second = example.providers["bank"].accounts["main"], example.providers["bank"].accounts["second"]
    assert (main.origin, main.credentials) == ("https://api.bank.example", {"authorization": "Bearer main-token"})
    assert second.credentials == {"authorization": "Bearer second-token", "x-api-key": "api-key"}
    assert example.providers["oldbank"].accounts["main"].credentials == {"authorization": "Basic b2xk"}


def test_no_secret_is_shown(example: Configuration) -> None:
    shown = repr(example) + repr(example.providers) + example.settings.model_dump_json()
    assert not any(secret in shown for secret in ENV.values())


def test_contracts(example: Configuration) -> None:
    bank, old = example.providers["bank"].contract, example.providers["oldbank"].contract
    assert bank.key.margin == bank.flight_limit + bank.pause_allowance == 1020
    assert bank.replays and not bank.start_mark
    assert (bank.lookup.by_key, bank.lookup.by_reference, bank.lookup.by_id) == (True, False, True)
    assert not old.replays and old.start_mark and old.lookup.by_reference


def test_a_payment(example: Configuration) -> None:
    operation, bank = example.operations["payments.create"], example.providers["bank"]
    operation.validate(PAYMENT)
    frozen = bank.freeze(operation.request(PAYMENT), KEY)
    assert frozen == FrozenRequest(
        "POST",
        "/payments",
        {"idempotency-key": KEY, "content-type": "application/json", "accept": "application/json"},
        b'{"amount":1250,"currency":"eur","reference":"order A/7"}',
    )
    assert b'"note":"x"' in bank.freeze(operation.request({**PAYMENT, "note": "x"}), KEY).body
    assert operation.label(PAYMENT) == "order A/7"
    assert (operation.key_ttl, operation.patience, operation.account) == (259200, 900, "main")
    assert example.operations["transfers.create"].account == "main"


def test_params_that_the_schema_refuses(example: Configuration) -> None:
    with pytest.raises(ParamsInvalid) as raised:
        example.operations["payments.create"].validate({"amount": 0, "currency": "EUR", "extra": 1})
    assert [pointer for pointer, _ in raised.value.problems] == ["", "", "/amount", "/currency"]
    with pytest.raises(Unrenderable, match="order"):
        example.operations["payments.create"].request({"amount": 1, "currency": "eur"})


def test_the_old_bank_is_asked_by_reference(example: Configuration) -> None:
    old, operation = example.providers["oldbank"], example.operations["transfers.create"]
    assert old.freeze(operation.request({"amount": 5}), KEY).body == f'{{"amount":5,"reference":"{KEY}"}}'.encode()
    question = Question(KEY, None, awaiting=False)
    (asked,) = old.questions(question)
    assert asked.path == f"/payments?reference={KEY}"
    found = {"id": "p1", "status": "succeeded", "reference": KEY}
    assert old.read_lookup(answered(200, {"data": [found]}), question, asked)[0] == Succeeded("p1", "succeeded")
    assert old.read_lookup(answered(200, {"data": []}), question, asked)[0] == Absent()


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (201, {"id": "p1", "status": "succeeded", "amount": 1}, Succeeded("p1", "succeeded", {"amount": 1})),
        (201, {"id": "p1", "status": "processing"}, Pending("p1", "processing")),
        (
            402,
            {"error": {"code": "card_declined", "message": "No."}, "id": "p1"},
            Refused("p1", None, {"code": "card_declined", "message": "No."}),
        ),
        (400, {"error": {"code": "invalid", "message": "No."}}, NotExecuted("request")),
        (400, {"error": {"code": "reused", "type": "idempotency_error"}}, Ambiguous()),
        (429, {"error": {"code": "slow"}}, NotExecuted("throttled")),
    ],
)
def test_outcomes(example: Configuration, status: int, body: object, outcome: object) -> None:
    assert example.providers["bank"].classify(answered(status, body))[0] == outcome


def test_the_declared_answer(example: Configuration) -> None:
    answer = example.operations["payments.create"].answer(Succeeded("p1", "succeeded", {"amount": 1250}), "i1")
    assert (answer.status, answer.headers) == (201, {"content-type": "application/json"})
    assert answer.body == b'{"payment":"p1","status":"succeeded","amount":1250,"intent":"i1"}'
    later = example.operations["payments.create"].answer(Succeeded("p1", "succeeded"), "i1")
    assert later.body == b'{"payment":"p1","status":"succeeded","intent":"i1"}'


def test_the_default_answers(example: Configuration) -> None:
    operation = example.operations["transfers.create"]
    answer = operation.answer(Succeeded("p1", "succeeded", {"id": 9223372036854775807}), "i1")
    assert (answer.status, answer.body) == (
        201,
        b'{"intent":"i1","state":"completed","provider_reference":"p1","result":{"id":9223372036854775807}}',
    )
    refused = operation.answer(Refused("p1", "declined", {"code": "card_declined", "message": "No."}), "i1")
    assert (refused.status, refused.headers) == (402, {"content-type": "application/problem+json"})
    assert json.loads(refused.body) == {
        "type": "/problems/provider_refused",
        "title": "The provider refused",
        "status": 402,
        "code": "provider_refused",
        "provider_code": "card_declined",
        "detail": "No.",
        "intent": "i1",
        "state": "completed",
        "provider_reference": "p1",
        "result": {"code": "card_declined", "message": "No."},
    }


def test_an_answer_is_storable_whatever_the_provider_said(example: Configuration) -> None:
    for operation in example.operations.values():
        for outcome in (Succeeded(None, None, {"amount": float("nan"), "x": "\ud800\x00"}), Refused(None)):
            assert operation.answer(outcome, "i1").body.decode("utf-8")
