from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from providers.fix_bank import LOOKUPS, answered, bank, error

from idem.errors import Unrenderable
from idem.outbox.domain.contract import FrozenRequest, KeyRule, ProviderRequest, Response
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.lookups import ById, ByKey, ByReference
from idem.outbox.providers.outcome_rules import Condition, Rule, Says, statuses
from idem.outbox.providers.template import KEY_TEXT, KeyText
from idem.outcomes import Absent, CouldNotAsk, LookupOutcome, Pending, Refused, Succeeded
from idem.sending import Question

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
BANK: Provider = bank()
UNKNOWN = Question(KEY, None, awaiting=False)
AWAITING = Question(KEY, "pay_1", awaiting=True)


def keyed(carrier: Any, name: str | None) -> Any:
    return bank(contract=replace(bank().contract, key=KeyRule(carrier, name)))


def post(json: Any = None, **changes: Any) -> ProviderRequest:
    return ProviderRequest(**{"method": "POST", "path": "/payments", "json": json, **changes})


def test_the_key_in_a_header() -> None:
    frozen = BANK.freeze(post({"amount": 1, "name": "Zoë", "id": 9223372036854775807}, headers={"X-A": "b c"}), KEY)
    assert frozen == FrozenRequest(
        "POST",
        "/payments",
        {"x-a": "b c", "idempotency-key": KEY, "content-type": "application/json", "accept": "application/json"},
        '{"amount":1,"name":"Zoë","id":9223372036854775807}'.encode(),
    )
    assert BANK.freeze(post({"amount": 1}), KEY) == BANK.freeze(post({"amount": 1}), KEY)


def test_the_key_in_the_body_or_nowhere() -> None:
    assert (
        keyed("body", "idempotency_key").freeze(post({"a": 1}), KEY).body
        == f'{{"a":1,"idempotency_key":"{KEY}"}}'.encode()
    )
    frozen = keyed("none", None).freeze(post({"reference": KEY_TEXT}, path=KeyText("/p/", None)), KEY)
    assert (frozen.body, frozen.path) == (f'{{"reference":"{KEY}"}}'.encode(), f"/p/{KEY}")
    assert type(frozen.path) is str
    assert "idempotency-key" not in frozen.headers


def test_a_request_without_a_body() -> None:
    frozen = BANK.freeze(post(method="delete", path="/payments/1"), KEY)
    assert (frozen.method, frozen.body) == ("DELETE", b"")
    assert "content-type" not in frozen.headers


def test_the_media_type_can_be_another_json() -> None:
    headers = {"Content-Type": "application/vnd.api+json"}
    assert BANK.freeze(post({}, headers=headers), KEY).headers["content-type"] == "application/vnd.api+json"


@pytest.mark.parametrize(
    "request_",
    [
        post(method="GET"),
        *(post(path=path) for path in ("https://evil.example/x", "//evil.example")),
        *(post(headers={"X-A": value}) for value in ("a\nb", "")),
        *(post(headers={name: "1"}) for name in ("X A", "Authorization", "Content-Length", "Host", "IDEMPOTENCY-KEY")),
        post(headers={"X-A": "1", "x-a": "2"}),
        *(post({"a": value}) for value in (float("nan"), "\ud800", {1, 2}, b"x")),
    ],
)
def test_what_cannot_be_sent_is_unrenderable(request_: ProviderRequest) -> None:
    with pytest.raises(Unrenderable):
        BANK.freeze(request_, KEY)


@pytest.mark.parametrize("content", [None, [], "x", {"idempotency_key": "mine"}])
def test_a_body_that_has_no_place_for_the_key(content: Any) -> None:
    with pytest.raises(Unrenderable, match="idempotency_key"):
        keyed("body", "idempotency_key").freeze(post(content), KEY)


def test_questions_are_best_first_and_only_what_can_be_asked() -> None:
    by_reference = f"/payments?reference={KEY}"
    assert [asked.path for asked in BANK.questions(UNKNOWN)] == [by_reference]
    assert [asked.path for asked in BANK.questions(AWAITING)] == ["/payments/pay_1", by_reference]
    assert [asked.path for asked in BANK.questions(replace(AWAITING, reference="a/b?"))] == [
        "/payments/a%2Fb%3F",
        by_reference,
    ]
    for other_address in ("..", "a/../b"):
        asked = BANK.questions(replace(AWAITING, reference=other_address))
        assert [each.path for each in asked] == [by_reference]
    assert bank(lookups=()).questions(AWAITING) == ()
    assert all(asked.method == "GET" and asked.body == b"" for asked in BANK.questions(AWAITING))


def listed(*objects: Any) -> Response:
    return answered(200, {"data": list(objects)})


def ours(status: str = "succeeded", **more: Any) -> dict[str, Any]:
    return {"id": "pay_1", "status": status, "reference": KEY, **more}


THEIRS = {"id": "pay_9", "status": "succeeded", "reference": "another"}


@pytest.mark.parametrize(
    ("response", "look"),
    [
        (listed(ours()), Succeeded("pay_1", "succeeded")),
        (listed(ours("processing")), Pending("pay_1", "processing")),
        (listed(ours("declined")), Refused("pay_1", "declined")),
        (listed(THEIRS, ours()), Succeeded("pay_1", "succeeded")),
        (listed(), Absent()),
        # A question that failed, or whose answer is about somebody else, says nothing.
        (listed(THEIRS), CouldNotAsk()),
        (listed(ours("new_word")), CouldNotAsk()),
        (listed(ours(id=None)), CouldNotAsk()),
        (answered(200, {"data": {}}), CouldNotAsk()),
        (answered(200, {"data": None}), CouldNotAsk()),
        (answered(200, {}), CouldNotAsk()),
        (answered(200, []), CouldNotAsk()),
        (answered(200, b""), CouldNotAsk()),
        (answered(204), CouldNotAsk()),
        (answered(200, {"data": []}, complete=False), CouldNotAsk()),
        (answered(404, error("not_found")), CouldNotAsk()),
        (answered(404, b"<html>"), CouldNotAsk()),
        (answered(401, error()), CouldNotAsk()),
        (answered(302, {"data": []}), CouldNotAsk()),
        (answered(500, {"data": []}), CouldNotAsk()),
        (answered(429, error(), retry_after="9"), CouldNotAsk(9.0)),
        (answered(503, b"", Retry_After="9" * 12), CouldNotAsk(21600.0)),
    ],
)
def test_lookups_by_reference(response: Response, look: LookupOutcome) -> None:
    assert BANK.read_lookup(response, UNKNOWN)[0] == look


@pytest.mark.parametrize(
    ("response", "look"),
    [
        (answered(200, ours()), Succeeded("pay_1", "succeeded")),
        (answered(200, ours("declined")), Refused("pay_1", "declined")),
        (answered(404, error("not_found")), Absent()),
        (answered(404, b"<html>"), CouldNotAsk()),
        (answered(200, THEIRS), CouldNotAsk()),
        (answered(200, {"data": []}), CouldNotAsk()),
    ],
)
def test_lookups_by_id(response: Response, look: LookupOutcome) -> None:
    by_id, _ = BANK.questions(AWAITING)
    assert BANK.read_lookup(response, AWAITING, by_id)[0] == look


def test_an_answer_to_an_unnamed_question_counts_only_if_it_can_be_read_in_one_way() -> None:
    assert BANK.read_lookup(answered(200, ours()), AWAITING)[0] == Succeeded("pay_1", "succeeded")
    assert BANK.read_lookup(answered(404, error()), AWAITING)[0] == Absent()
    assert BANK.read_lookup(answered(200, ours(data=[])), AWAITING)[0] == CouldNotAsk()


def test_two_objects_with_one_key_are_noted() -> None:
    look, seen = BANK.read_lookup(listed(ours(), ours(id="pay_2")), UNKNOWN)
    assert look == Succeeded("pay_1", "succeeded")
    assert seen.note == "2 objects carry this key"


def test_an_object_that_was_made_with_201_is_found_with_200() -> None:
    rule = Rule(Says.FINAL, statuses([201]), (Condition(("status",), ("succeeded",)),))
    assert bank(outcome=(rule,)).read_lookup(listed(ours()), UNKNOWN)[0] == Succeeded(None)


def test_absence_by_a_rule() -> None:
    rule = Rule(Says.ABSENT, statuses([200, 404]), (Condition(("error", "code"), ("no_such_key",)),))
    provider = bank(outcome=(rule, *bank().outcome))
    assert provider.read_lookup(answered(404, error("no_such_key")), UNKNOWN)[0] == Absent()
    assert provider.read_lookup(answered(404, error("no_such_path")), UNKNOWN)[0] == CouldNotAsk()
    anything = bank(outcome=(Rule(Says.ABSENT, statuses([404])), *bank().outcome))
    assert anything.read_lookup(answered(404, b"<html>"), UNKNOWN)[0] == CouldNotAsk()


def test_a_provider_that_is_not_asked() -> None:
    assert bank(lookups=()).read_lookup(listed(ours()), UNKNOWN)[0] == CouldNotAsk()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from([KEY, "succeeded", "pay_1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "id", "status", "reference", "error", "code"]), inner, max_size=5)
    ),
    max_leaves=10,
)
POINTERS = st.sampled_from([(), ("data",), ("data", "0"), ("id",), ("reference",)])
ANY_LOOKUPS = st.lists(
    st.builds(
        lambda way, **given: way(path="/p?r={idem.reference}" if way is ById else "/p?r={idem.key}", **given),
        st.sampled_from([ById, ByKey, ByReference]),
        object=POINTERS,
        match=st.none() | POINTERS,
        empty=st.none() | POINTERS,
        absent=st.sampled_from([[], 404]),
    ),
    max_size=2,
).map(tuple)


@given(
    ANY_LOOKUPS | st.just(LOOKUPS),
    st.integers(100, 599) | st.integers(),
    VALUES.map(lambda value: answered(200, value).body) | st.binary(max_size=20),
    st.booleans(),
    st.sampled_from([UNKNOWN, AWAITING]),
)
def test_read_look_never_raises_and_never_believes_half_an_answer(
    lookups: Any, status: int, body: bytes, complete: bool, question: Question
) -> None:
    look, seen = bank(lookups=lookups).read_lookup(Response(status, {}, body, complete), question)
    assert isinstance(look, Succeeded | Refused | Pending | Absent | CouldNotAsk)
    assert seen.http_status == status
    if not complete:
        assert isinstance(look, CouldNotAsk)
    if isinstance(look, Succeeded | Refused | Pending):
        assert 200 <= status < 300


async def test_the_frozen_bytes_are_what_httpx_sends() -> None:
    frozen = BANK.freeze(post({"name": "Zoë"}, path="/payments/a%2Fb?x=%20"), KEY)
    with respx.mock:
        route = respx.route().mock(return_value=httpx.Response(201, json={"id": "pay_1", "status": "succeeded"}))
        async with httpx.AsyncClient(verify=False) as client:
            url = httpx.URL("https://bank.example" + frozen.path)
            response = await client.request(
                frozen.method, url, content=frozen.body, headers=dict(frozen.headers), follow_redirects=False
            )
    sent = route.calls.last.request
    assert (sent.url.raw_path, sent.content) == (b"/payments/a%2Fb?x=%20", frozen.body)
    assert sent.headers["idempotency-key"] == KEY
    outcome, _ = BANK.classify(Response(response.status_code, dict(response.headers), response.content))
    assert outcome == Succeeded("pay_1", "succeeded")
