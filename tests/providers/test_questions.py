"""Look-ups by prefix, by events and over pages, the listing and the cancel: what they ask, and what they believe."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from providers.fix_bank import answered
from providers.fix_lists import SQUARE, STRIPE, provider
from pydantic import ValidationError

from idem.outbox.domain.contract import CancelRule, FrozenRequest
from idem.outbox.domain.provider import Item, Page
from idem.outbox.providers.contract_checks import check
from idem.outcomes import Absent, CouldNotAsk, LookupOutcome, Pending, Refused, Succeeded
from idem.sending import Question

KEY, EARLIER = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566", "0b5f9b7e-2f3a-8c1d-9e4f-000000000000"
SENT = float(int(time.time()) - 600)
STRIPE_LIKE, SQUARE_LIKE = provider(STRIPE), provider(SQUARE)
LOST = Question(KEY, None, False, SENT + 0.7, "POST", "/v1/payment_intents/pi_1/confirm", (EARLIER,))
EVENTS = f"/v1/events?limit=100&created%5Bgte%5D={int(SENT) - 300}"


def paths(question: Question, of: Any = STRIPE_LIKE) -> list[str]:
    return [request.path for request in of.questions(question)]


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("pi_1", "/v1/payment_intents/pi_1"),
        ("pi_old_1", "/v0/pi_old_1"),
        ("pi_o", "/v1/payment_intents/pi_o"),
        ("re_1/2?", "/r/re_1%2F2%3F"),
        # A gateway may decode it before it looks where it goes.
        ("re_1/../2", None),
        ("ch_1", None),
        (None, None),
    ],
)
def test_by_id_the_longest_beginning_of_the_reference_wins(reference: str | None, path: str | None) -> None:
    asked = paths(replace(LOST, reference=reference))
    assert asked == ([path, EVENTS] if path else [EVENTS])


def test_a_lookup_may_ask_under_the_path_of_the_call() -> None:
    look = {"by_id": {"path": "{idem.path}/{idem.reference}?at={idem.sent_at_iso}&of={idem.path}"}}
    of = provider(STRIPE, lookup=look)
    asked = replace(LOST, reference="pi_1", path="/v1/payment%20intents?expand=x", sent_at=300.0)
    assert paths(asked, of) == ["/v1/payment%20intents/pi_1?at=1970-01-01T00%3A00%3A00Z&of=%2Fv1%2Fpayment%2520intents"]
    assert paths(replace(asked, path=""), of) == []
    assert paths(replace(asked, sent_at=None), of) == []


def test_events_are_asked_for_only_while_they_would_still_be_there() -> None:
    assert paths(LOST) == [EVENTS]
    assert paths(replace(LOST, sent_at=None)) == [], "nothing was sent"
    assert paths(replace(LOST, path="/v1/payouts")) == [], "whose events are which is not said"
    assert paths(replace(LOST, sent_at=LOST.asked_at - 29 * 86400)) != []
    assert paths(replace(LOST, sent_at=LOST.asked_at - 30 * 86400)) == [], "an event that is gone proves nothing"
    events = {"by_events": {"path": "/e?t={idem.sent_at}", "match": "/key"}}
    assert paths(LOST, provider(STRIPE, lookup=events)) == [f"/e?t={int(SENT) - 300}"]


def event(kind: str, status: str, *, id: str = "pi_1", at: float = 1.0, key: Any = KEY, **metadata: str) -> Any:
    thing = {"id": id, "status": status, "metadata": metadata}
    return {"id": "evt_1", "type": kind, "created": at, "request": {"idempotency_key": key}, "data": {"object": thing}}


def events(*each: Any, more: bool = False) -> Any:
    return answered(200, {"data": list(each), "has_more": more})


PAID = event("payment_intent.succeeded", "succeeded", at=3.0)
ACTION = event("payment_intent.requires_action", "requires_action", at=2.0)
CREATED = event("payment_intent.created", "processing", at=1.0)


@pytest.mark.parametrize(
    ("response", "look"),
    [
        (events(PAID, CREATED), Succeeded("pi_1", "succeeded")),
        (events(CREATED, ACTION, PAID), Succeeded("pi_1", "succeeded")),
        (events(ACTION, CREATED), Succeeded("pi_1", "requires_action", interim=True)),
        (events(CREATED), Pending("pi_1", "processing")),
        # By metadata, and by the key of an earlier generation.
        (events(event("payment_intent.x", "succeeded", key=None, idem_key=KEY)), Succeeded("pi_1", "succeeded")),
        (events(event("payment_intent.x", "succeeded", key=EARLIER)), Succeeded("pi_1", "succeeded")),
        # Events of other calls, and of other objects that this call made.
        (events(event("payment_intent.x", "succeeded", key="another")), Absent()),
        (events(event("payment_intent.x", "succeeded", key=None)), Absent()),
        (events(event("charge.succeeded", "succeeded", id="ch_1")), Absent()),
        (events(event("charge.succeeded", "succeeded", id="ch_1", at=9.0), ACTION, CREATED),
         Succeeded("pi_1", "requires_action", interim=True)),
        (events(), Absent()),
        # What is newest decides, also over a refusal; and an old refusal is none.
        (events(PAID, event("payment_intent.canceled", "canceled", at=2.5)), Succeeded("pi_1", "succeeded")),
        (events(event("payment_intent.canceled", "canceled", at=4.0), PAID), Refused("pi_1", "canceled")),
        (events(event("payment_intent.new", "new_word", at=5.0), event("payment_intent.canceled", "canceled", at=4.0)),
         CouldNotAsk()),
        (events(event("payment_intent.new", "new_word", at=5.0), PAID), Succeeded("pi_1", "succeeded")),
        (events(event("payment_intent.new", "new_word")), CouldNotAsk()),
        (events({"type": "payment_intent.x", "request": {"idempotency_key": KEY}}), CouldNotAsk()),
        # No list, no end, no answer.
        (events(CREATED, more=True), Pending("pi_1", "processing")),
        (answered(200, {"data": []}), CouldNotAsk()),
        (answered(200, {"data": {}, "has_more": False}), CouldNotAsk()),
        (answered(200, {"has_more": False}), CouldNotAsk()),
        (answered(200, b"<html>"), CouldNotAsk()),
        (answered(200, {"data": [], "has_more": False}, complete=False), CouldNotAsk()),
        (answered(404, {"error": {"type": "invalid_request_error"}}), CouldNotAsk()),
        (answered(429, {}, retry_after="7"), CouldNotAsk(7.0)),
    ],
)  # fmt: skip
def test_what_a_page_of_events_says(response: Any, look: LookupOutcome) -> None:
    (asked,) = STRIPE_LIKE.questions(LOST)
    assert STRIPE_LIKE.read_lookup(response, LOST, asked)[0] == look


def test_two_objects_with_our_key_are_copies() -> None:
    (asked,) = STRIPE_LIKE.questions(LOST)
    both = events(event("payment_intent.canceled", "canceled", id="pi_2", at=9.0), PAID, CREATED)
    look, seen = STRIPE_LIKE.read_lookup(both, LOST, asked)
    assert (look, seen.copies) == (Succeeded("pi_1", "succeeded"), 2)
    assert STRIPE_LIKE.read_lookup(events(PAID, ACTION, CREATED), LOST, asked)[1].copies == 1


def test_an_absence_is_of_the_whole_list() -> None:
    (asked,) = STRIPE_LIKE.questions(LOST)
    theirs = event("payment_intent.x", "succeeded", key="another")
    assert STRIPE_LIKE.read_lookup(events(theirs, more=True), LOST, asked)[0] == Absent()
    page = STRIPE_LIKE.next_page(events(theirs, more=True), LOST, asked)
    assert page is not None and page.path == EVENTS + "&starting_after=evt_1"
    assert page.headers["stripe-version"] == "2026-10-01"
    # The second page is read as the first is, leads to a third, and itself again is a circle.
    assert STRIPE_LIKE.read_lookup(events(PAID), LOST, page)[0] == Succeeded("pi_1", "succeeded")
    assert STRIPE_LIKE.read_lookup(events(theirs, more=True), LOST, page)[0] == CouldNotAsk()
    assert STRIPE_LIKE.next_page(events(theirs, more=True), LOST, page) is None
    assert STRIPE_LIKE.next_page(events({**theirs, "id": "evt_2"}, more=True), LOST, page) is not None
    for last in (events(theirs), events(PAID, more=True), answered(500, {"data": [], "has_more": True})):
        assert STRIPE_LIKE.next_page(last, LOST, asked) is None
    # Where the end is not known there is no absence.
    assert STRIPE_LIKE.read_lookup(events(more=True), LOST, asked)[0] == CouldNotAsk()
    assert STRIPE_LIKE.next_page(events(more=True), LOST, asked) is None


def test_oldest_first_is_read_to_its_end() -> None:
    lookup = {
        "by_events": {"path": "/e", "items": "/data", "match": "/request/idempotency_key", "order": "oldest_first"}
    }
    lookup["by_events"] |= {"object": "/data/object", "page": {"style": "offset", "parameter": "from"}}
    of = provider(STRIPE, lookup=lookup)
    (asked,) = of.questions(LOST)
    assert of.read_lookup(events(CREATED, ACTION, PAID), LOST, asked)[0] == Succeeded("pi_1", "succeeded")
    assert of.read_lookup(events(CREATED, ACTION), LOST, asked)[0] == Succeeded("pi_1", "requires_action", interim=True)
    page = of.next_page(events(CREATED, ACTION), LOST, asked)
    assert page is not None and page.path == "/e?from=2"


def test_a_list_of_objects_is_walked_for_the_one_with_our_key() -> None:
    (asked,) = SQUARE_LIKE.questions(LOST)
    begin = datetime.fromtimestamp(SENT - 300, UTC).strftime("%Y-%m-%dT%H%%3A%M%%3A%SZ")
    assert asked.path == f"/v2/payments?begin_time={begin}&sort_order=ASC"

    def page(*found: tuple[str, str], cursor: str | None = None) -> Any:
        listed = [{"id": f"p-{at}", "status": status, "reference_id": key} for at, (status, key) in enumerate(found)]
        return answered(200, {"payments": listed, "cursor": cursor})

    read = SQUARE_LIKE.read_lookup
    assert read(page(("COMPLETED", "x"), ("APPROVED", KEY)), LOST, asked)[0] == Succeeded(
        "p-1", "APPROVED", interim=True
    )
    assert read(page(("COMPLETED", EARLIER)), LOST, asked)[0] == Succeeded("p-0", "COMPLETED")
    assert read(page(("COMPLETED", "x")), LOST, asked)[0] == Absent()
    assert read(page(), LOST, asked)[0] == Absent()
    assert read(answered(200, {}), LOST, asked)[0] == CouldNotAsk()
    assert read(answered(404, {"errors": [{"code": "NOT_FOUND"}]}), LOST, asked)[0] == CouldNotAsk()
    following = SQUARE_LIKE.next_page(page(("COMPLETED", "x"), cursor="c 1"), LOST, asked)
    assert following is not None and following.path == asked.path + "&cursor=c%201"
    assert SQUARE_LIKE.next_page(page(("PENDING", KEY), cursor="c"), LOST, asked) is None


def test_the_listing() -> None:
    first = STRIPE_LIKE.listing(1000.9, 2000.0)
    assert first is not None
    assert first.path == "/v1/payment_intents?limit=100&created%5Bgte%5D=1000&created%5Blt%5D=2001"
    assert first.headers == {"accept": "application/json", "cache-control": "no-cache", "stripe-version": "2026-10-01"}
    ours = {"idem_deployment": "test", "idem_key": KEY}
    found = [
        {"id": "pi_1", "status": "succeeded", "created": 1500, "metadata": ours},
        {
            "id": "pi_2",
            "status": "canceled",
            "created": "1970-01-01T00:20:00Z",
            "metadata": {"idem_deployment": "prod"},
        },
        {"id": "pi_3", "status": "new_word"},
        "nonsense",
    ]
    page = STRIPE_LIKE.read_listing(answered(200, {"data": found, "has_more": False}), first)
    assert page == Page(
        (
            Item("pi_1", KEY, Succeeded("pi_1", "succeeded"), "succeeded", 1500.0, True),
            Item("pi_2", None, Refused("pi_2", "canceled"), "canceled", 1200.0, False),
            Item("pi_3", None, None, "new_word", None, False),
            Item(None, ours=False),
        )
    )
    page = STRIPE_LIKE.read_listing(answered(200, {"data": found[:1], "has_more": True}), first)
    assert page is not None and page.following is not None
    assert page.following.path == first.path + "&starting_after=pi_1"
    for none in ({"data": {}}, {}, [], b"<html>"):
        assert STRIPE_LIKE.read_listing(answered(200, none), first) is None
    assert STRIPE_LIKE.read_listing(answered(500, {"data": found, "has_more": False}), first) is None
    broken = STRIPE_LIKE.read_listing(answered(200, {"data": found[:3]}), first)
    assert broken is not None and (broken.following, "/has_more" in broken.broken, len(broken.items)) == (None, True, 3)
    assert SQUARE_LIKE.listing(0, 1) is None
    assert SQUARE_LIKE.read_listing(answered(200, {}), first) is None


def test_without_a_tag_an_object_has_no_owner() -> None:
    listed = {
        "path": "/p?since={idem.since_iso}",
        "items": "/payments",
        "object": "/payment",
        "key": "/idempotency_key",
    }
    of = provider(SQUARE, list=listed)
    first = of.listing(0.0, 1.0)
    assert first is not None and first.path == "/p?since=1970-01-01T00%3A00%3A00Z"
    wrapped = {"payment": {"id": 7, "status": "COMPLETED", "idempotency_key": KEY}}
    page = of.read_listing(answered(200, {"payments": [wrapped]}), first)
    assert page == Page((Item("7", KEY, Succeeded("7", "COMPLETED"), "COMPLETED"),))


def test_the_request_that_cancels_carries_the_key_where_the_contract_says() -> None:
    assert SQUARE_LIKE.cancel(LOST) == FrozenRequest(
        "POST",
        "/v2/payments/cancel",
        {"accept": "application/json", "content-type": "application/json"},
        f'{{"idempotency_key":"{KEY}"}}'.encode(),
    )
    form = provider(STRIPE, cancel_by_key={"method": "DELETE", "path": "/k/{idem.key}"}).cancel(LOST)
    assert form is not None and (form.method, form.path, form.body) == ("DELETE", f"/k/{KEY}", b"")
    assert "idempotency-key" not in form.headers, "under it the provider remembers another request"
    of = provider(STRIPE, cancel_by_key={"path": "/c", "body": {"a": {"b": "{idem.key}"}}}).cancel(LOST)
    assert of is not None and of.body == f"a%5Bb%5D={KEY}".encode()
    assert STRIPE_LIKE.cancel(LOST) is None
    assert STRIPE_LIKE.read_cancel(answered(200, {}), LOST)[0] == CouldNotAsk()


def paid(status: str, **more: str) -> dict[str, Any]:
    return {"payment": {"id": "p-1", "status": status, **more}}


@pytest.mark.parametrize(
    ("response", "look"),
    [
        (answered(200, {}), Absent()),
        (answered(204), Absent()),
        (answered(200, paid("CANCELED")), Absent()),
        # Too late: it stands.
        (answered(200, paid("COMPLETED")), Succeeded("p-1", "COMPLETED")),
        (answered(200, paid("PENDING")), Pending("p-1", "PENDING")),
        (answered(409, {"errors": [{"code": "TOO_LATE"}], **paid("APPROVED")}),
         Succeeded("p-1", "APPROVED", interim=True)),
        (answered(400, paid("FAILED")), Refused("p-1", "FAILED")),
        # No word about the key.
        (answered(200, b"<html>"), CouldNotAsk()),
        (answered(200, {}, complete=False), CouldNotAsk()),
        (answered(404, {"errors": [{"code": "NOT_FOUND"}]}), CouldNotAsk()),
        (answered(500, {}), CouldNotAsk()),
        (answered(302), CouldNotAsk()),
        (answered(401, {"errors": [{"code": "UNAUTHORIZED"}]}), CouldNotAsk()),
        (answered(429, {}, retry_after="3"), CouldNotAsk(3.0)),
    ],
)  # fmt: skip
def test_what_a_cancel_says(response: Any, look: LookupOutcome) -> None:
    assert SQUARE_LIKE.read_cancel(response, LOST)[0] == look


def test_done_may_be_another_status_or_a_word_in_the_body() -> None:
    def read(response: Any, **more: Any) -> LookupOutcome:
        of = provider(SQUARE, cancel_by_key={"path": "/c/{idem.key}", **more})
        return of.read_cancel(response, LOST)[0]

    known = answered(404, {"errors": [{"code": "NOT_FOUND"}]})
    assert read(known, done=["2xx", 404]) == Absent()
    assert read(answered(404, b"<html>"), done=["2xx", 404]) == CouldNotAsk(), "a proxy's 404 cancels nothing"
    assert read(answered(404, {}), done=["2xx", 404]) == CouldNotAsk()
    assert read(answered(200, {"result": "voided"}), when={"/result": ["voided", "unknown"]}) == Absent()
    assert read(answered(200, {"result": "running"}), when={"/result": ["voided", "unknown"]}) == CouldNotAsk()
    assert read(answered(204), when={"/result": "voided"}) == CouldNotAsk()
    whose = {"object": "/payment", "match": "/reference_id"}
    assert read(answered(409, paid("COMPLETED", reference_id=KEY)), **whose) == Succeeded("p-1", "COMPLETED")
    assert read(answered(409, paid("COMPLETED", reference_id="x")), **whose) == CouldNotAsk()


def test_the_contract_says_what_the_settings_say() -> None:
    contract = SQUARE_LIKE.contract
    assert contract.strategies == ("lookup", "cancel_by_key")
    assert (contract.late_effects, contract.dedicated_account, contract.listed) == (True, True, False)
    assert contract.cancel == CancelRule(blocks_late_requests=False)
    assert STRIPE_LIKE.contract.lookup.by_events
    assert STRIPE_LIKE.contract.lookup.possible
    assert STRIPE_LIKE.contract.listed
    assert STRIPE_LIKE.contract.strategies == ()
    blocks = {"path": "/c/{idem.key}", "blocks_late_requests": True}
    assert provider(SQUARE, cancel_by_key=blocks).contract.cancel == CancelRule(blocks_late_requests=True)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"settle": ["cancel_by_key"]}, "settle"),
        (
            {"settle": ["replay", "lookup"], "key": {"carrier": "header", "name": "K", "replay": "success_only"}},
            "settle",
        ),
        ({"settle": ["replay", "lookup"], "key": {"carrier": "none"}}, "settle"),
        ({"settle": ["lookup"], "lookup": {}}, "settle"),
        ({"settle": ["lookup", "lookup"]}, "settle"),
    ],
)
def test_an_order_of_what_is_not_there_is_a_mistake(changes: dict[str, Any], where: str) -> None:
    found = check(provider(STRIPE, **changes).contract, lease=60, margin=5)
    assert ("error", where) in [(finding.level, finding.where) for finding in found]


PAGE = {"style": "after_id", "parameter": "after"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lookup": {"by_key": {"path": "/p"}}}, "asks about no particular call"),
        ({"lookup": {"by_key": {"path": {"a": "/p?k={idem.key}"}}}}, "by_id alone"),
        ({"lookup": {"by_id": {"path": {}}}}, "by_id alone"),
        ({"lookup": {"by_id": {"path": {"pi_": "/p/{idem.key}"}}}}, "not available here"),
        ({"lookup": {"by_id": {"path": "/p?a[b]={idem.reference}"}}}, "%5B"),
        ({"lookup": {"by_id": {"path": "p/{idem.reference}"}}}, "begins with a slash"),
        ({"lookup": {"by_id": {"path": "/p/{idem.reference}/{amount}"}}}, "knows no params"),
        ({"lookup": {"by_key": {"path": "/p?k={idem.key}", "page": PAGE}}}, "walked by `match`"),
        ({"lookup": {"by_key": {"path": "/p?k={idem.key}", "match": "/k", "page": PAGE}}}, "walked by `match`"),
        ({"lookup": {"by_events": {"path": "/e", "match": []}}}, "place of our key"),
        ({"lookup": {"by_events": {"path": "/e?p={idem.reference}", "match": "/k"}}}, "not available here"),
        ({"lookup": {"by_events": {"path": "/e", "match": "/k", "types": ["a*b"]}}}, "not a type of events"),
        ({"lookup": {"by_events": {"path": "/e", "match": "/k", "types": {"v1": ["a"]}}}}, "not the beginning"),
        ({"list": {"path": "/p"}}, "without {idem.since}"),
        ({"list": {"path": "/p?a={idem.since}&k={idem.key}"}}, "not available here"),
        ({"list": {"path": "/p?a={idem.since}", "page": {"style": "cursor", "parameter": "c"}}}, "needs next"),
        ({"list": {"path": "/p?a={idem.since}", "page": {"style": "link", "parameter": "c"}}}, "has no parameter"),
        ({"list": {"path": "/p?a={idem.since}", "page": {**PAGE, "step": "items"}}}, "has no step"),
        ({"list": {"path": "/p?a={idem.since}", "page": {**PAGE, "id": ""}}}, "a member of the item"),
        ({"list": {"path": "/p?a={idem.since}", "page": {**PAGE, "most": 0}}}, "greater than or equal to 1"),
        ({"cancel_by_key": {"path": "/c"}}, "names no call"),
        ({"cancel_by_key": {"path": "/c", "body": {"a": "{amount}"}}}, "only {idem.key}"),
        ({"cancel_by_key": {"path": "/c/{idem.key}", "done": 999}}, "not an HTTP status"),
        ({"cancel_by_key": {"path": "/c/{idem.key}", "method": "GET"}}, "POST"),
        ({"settle": ["pray"]}, "replay"),
        ({"headers": {"Authorization": "x"}}, "cannot|not a header"),
        ({"headers": {"Idempotency-Key": "x"}}, "keep one of them"),
        ({"headers": {"X-A": "é"}}, "visible ASCII"),
    ],
)  # fmt: skip
def test_each_mistake_names_itself(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        provider(STRIPE, **changes)
