"""An object in an envelope, a list that is left out if it is empty, a tag elsewhere in an object, and a look-up by a
part of the call's own path."""

from pathlib import Path
from typing import Any

import pytest
from providers.fix_bank import answered
from providers.fix_lists import provider
from pydantic import ValidationError

from idem.outbox.domain.contract import ProviderRequest
from idem.outcomes import (
    Absent,
    Ambiguous,
    CouldNotAsk,
    LookupOutcome,
    NotExecuted,
    Outcome,
    Pending,
    Refused,
    Succeeded,
)
from idem.sending import Question

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
BANK = Path(__file__).with_name("envelopes_bank.toml").read_text()
DONE = {"id": "p1", "status": "DONE", "amount": 5}


def error(code: str, **more: Any) -> dict[str, Any]:
    return {"errors": [{"code": code, "detail": "No.", **more}]}


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (201, {"payment": DONE}, Succeeded("p1", "DONE", {"amount": 5})),
        (201, {"refund": DONE}, Succeeded("p1", "DONE", {"amount": 5})),
        # The first that is there counts.
        (201, {"refund": DONE, "payment": {**DONE, "status": "PENDING"}}, Pending("p1", "PENDING", {"amount": 5})),
        # An answer without an envelope is the object itself.
        (201, DONE, Succeeded("p1", "DONE", {"amount": 5})),
        (201, {"payment": {"status": "DONE"}}, Ambiguous()),
        (201, {"payment": None}, Ambiguous()),
        (200, {"payout": DONE}, Ambiguous()),
        # Beside a refused object stands why.
        (
            402,
            {**error("NO_FUNDS"), "payment": {"id": "p1", "status": "FAILED"}},
            Refused("p1", "FAILED", {"code": "NO_FUNDS", "message": "No."}),
        ),
        (
            402,
            {**error("DECLINED"), "payment": {"id": "p1"}},
            Refused("p1", None, {"code": "DECLINED", "message": "No."}),
        ),
        (400, error("REUSED"), Ambiguous()),
        (400, error("ELSE"), NotExecuted("request")),
        # What proves that the object exists may stand among the errors.
        (409, error("CREATED_ALREADY", id="p1"), Pending("p1")),
        (409, error("CREATED_ALREADY"), Ambiguous()),
    ],
)
def test_an_object_in_an_envelope(status: int, body: object, outcome: Outcome) -> None:
    assert provider(BANK).classify(answered(status, body))[0] == outcome


LIST = {**DONE, "metadata": {"key": KEY, "by": "test"}}


@pytest.mark.parametrize(
    ("body", "look"),
    [
        ({"data": {"payments": [LIST]}}, Succeeded("p1", "DONE", {"amount": 5})),
        ({"data": {"payments": []}}, Absent()),
        ({"data": {}}, Absent()),
        # What would hold the list is not there either: it is some other answer.
        ({}, CouldNotAsk()),
        ({"data": []}, CouldNotAsk()),
        ({"data": {"payments": None}}, CouldNotAsk()),
        ({"data": {}, **error("INTERNAL")}, CouldNotAsk()),
        ("", CouldNotAsk()),
    ],
)
def test_a_list_that_is_left_out_is_empty(body: object, look: LookupOutcome) -> None:
    bank, about = provider(BANK), Question(KEY, None, False, path="/payments/a%2Fb/refunds?x=1")
    (asked,) = bank.questions(about)
    assert asked.path == "/payments/a%2Fb/actions"
    assert bank.read_lookup(answered(200, body), about, asked)[0] == look


def test_a_list_without_that_word_says_nothing() -> None:
    told = BANK.replace(", omits_empty = true", "")
    bank, about = provider(told), Question(KEY, None, False, path="/payments/1/refunds")
    (asked,) = bank.questions(about)
    assert bank.read_lookup(answered(200, {"data": {}}), about, asked)[0] == CouldNotAsk()
    listing = bank.listing(0, 1)
    assert listing is not None and bank.read_listing(answered(200, {}), listing) is None


def test_a_page_that_is_left_out_goes_on_all_the_same() -> None:
    bank, about = provider(BANK), Question(KEY, None, False, path="/payments/1/refunds")
    (asked,) = bank.questions(about)
    following = bank.next_page(answered(200, {"data": {}, "cursor": "c"}), about, asked)
    assert following is not None and following.path == "/payments/1/actions?cursor=c"
    listing = bank.listing(0, 1)
    assert listing is not None
    page = bank.read_listing(answered(200, {"cursor": "c"}), listing)
    assert page is not None and page.items == () and page.following is not None


@pytest.mark.parametrize("path", ["", "/payments", "/", "//"])
def test_a_call_without_such_a_part_is_not_asked_about(path: str) -> None:
    assert provider(BANK).questions(Question(KEY, None, False, path=path)) == ()


def test_a_tag_elsewhere_in_an_object() -> None:
    bank = provider(BANK)
    frozen = bank.freeze(ProviderRequest("POST", "/payments", {"payment": {"amount": 5}}), KEY)
    assert frozen.body.decode() == ('{"payment":{"amount":5,"metadata":{"by":"test","key":"' + KEY + '"}}}')
    listing = bank.listing(0, 1)
    assert listing is not None
    page = bank.read_listing(answered(200, {"payments": [LIST, {"payment": LIST}]}), listing)
    assert page is not None
    assert [(item.ours, item.key) for item in page.items] == [(True, KEY), (False, None)]


def test_what_no_table_may_say() -> None:
    with pytest.raises(ValidationError, match="not the whole of it"):
        provider(BANK.replace('shown_at = "/metadata/by"', 'shown_at = ""'))
    with pytest.raises(ValidationError, match="segment"):
        provider(BANK.replace("segment.2", "segment.0"))
