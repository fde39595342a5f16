"""The design's table of outcomes, row by row; and that no answer of any kind can prove more than it says."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers.fix_bank import ERRORS, PLACES, RULES, answered, bank, error, said

from idem.outbox.domain.contract import Response
from idem.outbox.domain.outcomes import Seen
from idem.outbox.providers.errors import CONFIG, NO_PROOF, REQUEST, ErrorShape
from idem.outbox.providers.outcome_rules import Condition, HeaderCondition, Rule, Says, statuses
from idem.outcomes import Ambiguous, NotExecuted, Pending, Refused, Succeeded

BANK = bank()
THROTTLES = bank(contract=replace(BANK.contract, throttles_before_execution=True))
ANSWERS = bank(contract=replace(BANK.contract, unlisted_4xx="answer"))


def payment(status: str = "succeeded", **more: Any) -> dict[str, Any]:
    return {"id": "pay_1", "status": status, "amount": 100, **more}


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (answered(201, payment()), Succeeded("pay_1", "succeeded", {"amount": 100})),
        (
            answered(200, payment("requires_action")),
            Succeeded("pay_1", "requires_action", {"amount": 100}, interim=True),
        ),
        (answered(202, payment("processing")), Pending("pay_1", "processing", {"amount": 100})),
        (answered(200, payment("declined")), Refused("pay_1", "declined", {"amount": 100})),
        (
            answered(402, {**payment("declined"), **error("card_declined", "Declined.")}),
            Refused("pay_1", "declined", {"code": "card_declined", "message": "Declined.", "amount": 100}),
        ),
        (
            answered(402, error("no_funds", "No.", id="pay_2")),
            Refused("pay_2", None, {"code": "no_funds", "message": "No."}),
        ),
        # What no rule matches, or what cannot be read, proves nothing.
        (answered(200, payment("new_word")), Ambiguous()),
        (answered(200, {"status": "succeeded"}), Ambiguous()),
        (answered(200, payment(id=None)), Ambiguous()),
        (answered(200, payment(id="x" * 256)), Ambiguous()),
        (answered(200, b'{"id":"pay_1","status":"declined","status":"succeeded"}'), Ambiguous()),
        (answered(200, b"<html>"), Ambiguous()),
        (answered(201), Ambiguous()),
        (answered(200, b"[" * 100_000), Ambiguous()),
        *((answered(status, payment()), Ambiguous()) for status in (100, 300, 301, 302, 303, 304, 307, 308)),
    ],
)
def test_success_pending_and_refusal(response: Response, outcome: object) -> None:
    assert BANK.classify(response)[0] == outcome


@pytest.mark.parametrize("status", [401, 405, 406, 411, 415, 421, 425, 426, 428, 431, 501, 505, 511])
@pytest.mark.parametrize("body", [b"", b"<html>", error()])
def test_config(status: int, body: object) -> None:
    assert BANK.classify(answered(status, body))[0] == NotExecuted("config")


@pytest.mark.parametrize("status", [400, 402, 403, 404, 410, 413, 414, 417, 422, 451])
@pytest.mark.parametrize("body", [b"", b"<html>403</html>", {"message": "blocked"}, {"error": "text"}, [1]])
def test_a_4xx_that_is_not_in_the_error_shape_is_config(status: int, body: object) -> None:
    for provider in (BANK, THROTTLES, ANSWERS):
        assert provider.classify(answered(status, body))[0] == NotExecuted("config")


@pytest.mark.parametrize("status", [400, 403, 404, 413, 414, 417, 422])
def test_a_request_that_the_provider_does_not_take(status: int) -> None:
    assert BANK.classify(answered(status, error("bad_amount")))[0] == NotExecuted("request")
    refused = ANSWERS.classify(answered(status, error("bad_amount")))[0]
    assert refused == Refused(None, None, {"code": "bad_amount", "message": "No."})


@pytest.mark.parametrize("status", [408, 409, 410, 423, 424, 429, 451, 500, 502, 503, 504, 599])
def test_everything_else_is_ambiguous_in_the_error_shape_too(status: int) -> None:
    for provider in (BANK, ANSWERS):
        assert provider.classify(answered(status, error(), retry_after="1"))[0] == Ambiguous()


@pytest.mark.parametrize("status", [408, 409, 423, 424, 429, 500, 502, 503, 504])
def test_and_in_a_proxys_words(status: int) -> None:
    assert BANK.classify(answered(status, b"<html>"))[0] == Ambiguous()


def test_a_429_proves_something_only_if_the_contract_says_so() -> None:
    assert BANK.classify(answered(429, error(), retry_after="7"))[0] == Ambiguous()
    assert THROTTLES.classify(answered(429, error(), retry_after="7"))[0] == NotExecuted("throttled", 7.0)
    assert THROTTLES.classify(answered(429, b""))[0] == NotExecuted("throttled", None)
    assert THROTTLES.classify(answered(429, b"", retry_after="9" * 30))[0] == NotExecuted("throttled", 21600.0)


def test_without_an_error_shape_nothing_is_the_providers_own_word() -> None:
    nameless = bank(errors=ErrorShape())
    for status in (400, 402, 403, 404, 422):
        assert nameless.classify(answered(status, error()))[0] == NotExecuted("config")


def test_the_first_rule_that_matches_decides() -> None:
    unless = Rule(Says.AMBIGUOUS, statuses("4xx"), (Condition(("error", "code"), ("in_use", "reused")),))
    excused = Rule(Says.NOT_EXECUTED_REQUEST, statuses([409]), (Condition(("error", "code"), ("locked",)),))
    again = Rule(Says.NOT_EXECUTED_THROTTLED, statuses([503]), headers=(HeaderCondition("transient", ("TRUE",)),))
    wrong_key = Rule(Says.NOT_EXECUTED_CONFIG, statuses([400]), (Condition(("error", "code"), ("bad_version",)),))
    provider = bank(outcome=(unless, excused, again, wrong_key, *RULES))
    assert provider.classify(answered(400, error("in_use")))[0] == Ambiguous()
    assert provider.classify(answered(409, error("locked")))[0] == NotExecuted("request")
    assert provider.classify(answered(409, error("other")))[0] == Ambiguous()
    assert provider.classify(answered(503, b"", transient="true", retry_after="3"))[0] == NotExecuted("throttled", 3.0)
    assert provider.classify(answered(503, b"", transient="false"))[0] == Ambiguous()
    assert provider.classify(answered(400, error("bad_version")))[0] == NotExecuted("config")
    assert provider.classify(answered(201, payment()))[0] == Succeeded("pay_1", "succeeded", {"amount": 100})


def test_a_refusal_outside_2xx_must_look_like_the_provider() -> None:
    bare = bank(outcome=(Rule(Says.REFUSED, statuses([403, 422])), *RULES))
    assert bare.classify(answered(403, b"<html>"))[0] == NotExecuted("config")
    assert isinstance(bare.classify(answered(403, error()))[0], Refused)
    assert isinstance(bare.classify(answered(422, error("declined")))[0], Refused)


def test_a_bare_success_needs_the_body_that_the_contract_promises() -> None:
    bare = bank(outcome=(Rule(Says.FINAL, statuses("2xx")),))
    assert bare.classify(answered(204))[0] == Succeeded(None)
    assert bare.classify(answered(200, b"<html>Welcome to this hotel's network</html>"))[0] == Ambiguous()
    assert bare.classify(answered(200, b'{"id":'))[0] == Ambiguous()
    conflict = bank(outcome=(Rule(Says.FINAL, statuses([409])),))
    assert conflict.classify(answered(409, b""))[0] == Ambiguous()


def test_absent_is_no_answer_to_a_write() -> None:
    provider = bank(outcome=(Rule(Says.ABSENT, statuses([404]), (Condition(("error", "code"), ("gone",)),)),))
    assert provider.classify(answered(404, error("gone")))[0] == NotExecuted("request")


def test_conditions_know_json_types() -> None:
    rule = Rule(Says.FINAL, body=(Condition(("ok",), (True,)), Condition(("error",), exists=False)), places=PLACES)
    provider = bank(outcome=(rule,))
    assert isinstance(provider.classify(answered(200, payment(ok=True)))[0], Succeeded)
    for body in (payment(ok=1), payment(ok="true"), payment(ok=True, error=None), payment()):
        assert provider.classify(answered(200, body))[0] == Ambiguous()


def test_references_keep_their_digits() -> None:
    assert BANK.classify(answered(201, payment(id=9223372036854775807)))[0] == Succeeded(
        "9223372036854775807", "succeeded", {"amount": 100}
    )
    exact = BANK.classify(answered(201, b'{"id":"a","status":"succeeded","amount":100000000.000000011}'))[0]
    assert exact == Succeeded("a", "succeeded", {"amount": "100000000.000000011"})


def test_what_was_seen_has_the_code_and_the_message_and_no_body() -> None:
    """The message is for an operator: it is redacted before it is stored, and masked before it is shown."""
    assert BANK.classify(answered(422, error("bad_amount", "secret 4242")))[1] == Seen(
        http_status=422, code="bad_amount", message="secret 4242", note="the provider does not take this request",
        started=True,
    )  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("succeeded"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "status", "error", "code", "data", "amount"]), inner, max_size=4)
    ),
    max_leaves=8,
)
BODIES = st.binary(max_size=30) | JSON.map(lambda value: answered(200, value).body)
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "retry-after", "Date", "x"]), st.text(max_size=12), max_size=3
)
CONDITIONS = st.builds(
    Condition,
    st.sampled_from([(), ("id",), ("status",), ("error", "code"), ("data", "0")]),
    st.sampled_from([(), ("succeeded",), (True, 1)]),
    st.booleans(),
)
ANY_RULES = st.lists(
    st.builds(
        Rule,
        st.sampled_from(Says),
        st.sampled_from([statuses("2xx"), statuses("4xx"), statuses("5xx"), statuses("100-599")]),
        st.lists(CONDITIONS, max_size=2).map(tuple),
        places=st.sampled_from([PLACES, PLACES.model_copy(update={"reference": None})]),
    ),
    max_size=3,
).map(tuple)
PROVIDERS = st.builds(
    lambda rules, shape, throttles, unlisted: bank(
        outcome=rules,
        errors=shape,
        contract=replace(BANK.contract, throttles_before_execution=throttles, unlisted_4xx=unlisted),
    ),
    ANY_RULES | st.just(RULES),
    st.sampled_from([ERRORS, ErrorShape()]),
    st.booleans(),
    st.sampled_from(["hold", "answer"]),
)
STATUSES = st.integers(100, 599) | st.integers()


@given(PROVIDERS, STATUSES, HEADERS, BODIES)
def test_an_incomplete_response_is_ambiguous_whatever_it_begins_with(
    provider: Any, status: int, headers: dict[str, str], body: bytes
) -> None:
    assert provider.classify(Response(status, headers, body, complete=False))[0] == Ambiguous()


@given(PROVIDERS, STATUSES, HEADERS, BODIES)
def test_classify_never_raises(provider: Any, status: int, headers: dict[str, str], body: bytes) -> None:
    outcome, seen = provider.classify(Response(status, headers, body))
    assert isinstance(outcome, Succeeded | Refused | Pending | NotExecuted | Ambiguous)
    assert seen.http_status == status


@given(STATUSES, HEADERS, BODIES)
def test_only_what_the_table_lists_is_excused(status: int, headers: dict[str, str], body: bytes) -> None:
    outcome, _ = BANK.classify(Response(status, headers, body))
    match outcome:
        case NotExecuted(why="config"):
            assert status in CONFIG or (400 <= status < 500 and status not in NO_PROOF)
        case NotExecuted(why="request"):
            assert status in REQUEST
        case NotExecuted():
            raise AssertionError(outcome)
        case Succeeded() | Pending():
            assert 200 <= status < 300
            assert outcome.reference
        case Refused():
            assert 200 <= status < 300 or 400 <= status < 500


def test_a_broken_contract_is_ambiguous() -> None:
    broken = bank(outcome=(replace(said(Says.FINAL, "succeeded"), places=None),))  # type: ignore[arg-type]
    outcome, seen = broken.classify(answered(200, payment()))
    assert outcome == Ambiguous()
    assert seen.error == "AttributeError"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (402, {402}),
        ("402", {402}),
        ("400-402", {400, 401, 402}),
        ([402, "500-501"], {402, 500, 501}),
        ("2xx", set(range(200, 300))),
    ],
)
def test_sets_of_statuses(written: object, expected: set[int]) -> None:
    assert statuses(written) == expected


@pytest.mark.parametrize("written", ["", "6xx", "2XX", 99, 1000, "402-400", True, None, 4.02, {"a": 1}])
def test_what_is_no_status(written: object) -> None:
    with pytest.raises(ValueError, match="HTTP status"):
        statuses(written)
