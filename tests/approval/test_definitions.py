"""What an operation may say of approvals, in idem.toml and in Python, and what it may not."""

from pathlib import Path
from typing import Any

import pytest
from adopt.shop import Charge, define
from configuration.mistakes import PROVIDER

from idem import Answer, Idem
from idem.errors import ConfigError, Unrenderable
from idem.outbox import config
from idem.outbox.domain import approval
from idem.outbox.domain.operation import OperationSpec

OPERATION = '\n[operations.pay]\nprovider = "bank"\npath = "/payments"\nbody = { amount = "{amount}" }\n'


def declared(tmp_path: Path, *lines: str) -> OperationSpec:
    path = tmp_path / "idem.toml"
    path.write_text("\n".join([PROVIDER + OPERATION, *lines]))
    return config.load(path).operations["pay"]


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({"amount": 100}, False), ({"amount": 1000}, False), ({"amount": 1001}, True), ({"amount": 1000.5}, True),
        ({"amount": -5}, False), ({"amount": 2**70}, True), ({"amount": float("nan")}, True),
        ({}, True), ({"amount": None}, True), ({"amount": "5"}, True), ({"amount": True}, True),
        ({"amount": [1]}, True), ([], True), ("text", True), (None, True),
    ],
)  # fmt: skip
def test_a_rule_of_the_file_finds_one_number(tmp_path: Path, params: Any, wanted: bool) -> None:
    """Where there is no number, nothing says that it is small."""
    spec = declared(tmp_path, 'approve = { at = "/amount", above = 1000 }')
    assert approval.ruling(spec, params) == ("wanted" if wanted else "none")
    another = declared(tmp_path, 'approve = { at = "/amount", above = 1000 }', "two_persons = true")
    assert approval.ruling(another, params) == ("wanted_of_another" if wanted else "none")


def test_a_rule_finds_what_is_inside(tmp_path: Path) -> None:
    spec = declared(tmp_path, 'approve = { at = "/lines/0/total", above = 0.5 }')
    assert approval.ruling(spec, {"lines": [{"total": 0.5}]}) == "none"
    assert approval.ruling(spec, {"lines": [{"total": 0.75}]}) == "wanted"
    assert approval.ruling(spec, {"lines": []}) == "wanted"


def test_always_and_never(tmp_path: Path) -> None:
    assert approval.ruling(declared(tmp_path, 'approve = "always"'), {}) == "wanted"
    assert approval.ruling(declared(tmp_path), {"amount": 10**9}) == "none"


def test_the_answer_of_a_rejection_in_the_file(tmp_path: Path) -> None:
    spec = declared(
        tmp_path, 'approve = "always"',
        'answer.rejected = { status = 409, body = { of = "{idem.intent}" }, headers = { X-Why = "policy" } }',
    )  # fmt: skip
    assert spec.rejected is not None
    assert spec.rejected("i1") == Answer(409, b'{"of":"i1"}', {"content-type": "application/json", "x-why": "policy"})
    assert 409 in spec.answer_statuses


WRONG = {
    'approve = "sometimes"': "approve",
    "approve = true": "approve",
    'approve = { at = "amount", above = 1 }': "it starts with a slash",
    'approve = { at = "/amount", above = "1" }': "it must be a number",
    'approve = { at = "/amount", above = true }': "it must be a number",
    'approve = { at = "/amount", above = inf }': "it must be a number",
    'approve = { at = "/amount" }': "above",
    'approve = { at = "/amount", above = 1, below = 3 }': "below",
    "two_persons = true": "two_persons is for an operation with approve",
    "answer.rejected = { status = 403 }": "answer.rejected is for an operation with approve",
    'approve = "always"\nanswer.rejected = { status = 200 }': "answer.rejected.status",
    'approve = "always"\nanswer.rejected = { status = 500 }': "answer.rejected.status",
    'approve = "always"\nanswer.rejected = { status = 403, body = "{amount}" }': "only {idem.intent} is",
    'approve = "always"\nanswer.rejected = { status = 403, body = "{idem.reference}" }': "is not available here",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_of_the_file_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        declared(tmp_path, line)
    assert WRONG[line] in str(error.value) and "pay" in str(error.value)


def python(idem_toml: Path, **said: Any) -> OperationSpec:
    return define(idem_toml, **said)[1].spec  # type: ignore[no-any-return]


PARAMS = {"amount": 5, "currency": "eur"}


def test_a_function_gets_the_model(idem_toml: Path) -> None:
    seen = []

    def approve(params: Charge) -> bool:
        seen.append(params)
        return params.amount > 3

    spec = python(idem_toml, approve=approve, two_persons=True, rejected=Answer(403, {"no": 1}))
    assert approval.ruling(spec, PARAMS) == "wanted_of_another" and seen == [Charge(amount=5, currency="eur")]
    assert approval.ruling(spec, PARAMS | {"amount": 1}) == "none"
    assert spec.rejected is not None and spec.rejected("i1") == Answer(403, {"no": 1})


def test_the_rules_of_the_file_are_rules_of_python_too(idem_toml: Path) -> None:
    assert approval.ruling(python(idem_toml, approve="always"), PARAMS) == "wanted"
    assert approval.ruling(python(idem_toml, approve={"at": "/amount", "above": 4}), PARAMS) == "wanted"
    spec = python(idem_toml, approve="always", rejected=lambda intent: Answer(409, {"intent": intent}))
    assert spec.rejected is not None and spec.rejected("i1").body == b'{"intent":"i1"}'


@pytest.mark.parametrize("result", [None, 1, "yes", [], 0.0])
def test_only_true_and_false_are_an_answer(idem_toml: Path, result: Any) -> None:
    with pytest.raises(Unrenderable, match="not True or False"):
        approval.ruling(python(idem_toml, approve=lambda p: result), PARAMS)


async def later(params: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"approve": lambda: True}, "approve= takes the params"),
        ({"approve": later}, "idem does not await it"),
        ({"approve": "never"}, "approve"),
        ({"approve": True}, "approve"),
        ({"two_persons": True}, "two_persons is for an operation with approve"),
        ({"approve": "always", "two_persons": 1}, "must be of type bool"),
        ({"rejected": Answer(403)}, "rejected= is for an operation with approve="),
        ({"approve": "always", "rejected": 403}, "rejected= is an Answer"),
    ],
)
def test_a_mistake_of_python_is_named(idem_toml: Path, said: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=r"payments\.create") as error:
        python(idem_toml, **said)
    assert word in str(error.value)


@pytest.mark.parametrize("approve", ["always", {"at": "/amount", "above": 1}, lambda params: True])
@pytest.mark.parametrize("kind", ["inline", "local"])
def test_what_idem_does_not_send_cannot_wait_for_an_approval(idem_toml: Path, kind: str, approve: Any) -> None:
    idem = Idem(idem_toml)
    said: dict[str, Any] = {"provider": "ledger", "inline": True} if kind == "inline" else {}
    with pytest.raises(ConfigError, match=r"approve: .*idem cannot hold it back"):
        idem.operation("own", key_ttl="72h", approve=approve, **said)


def test_two_names_of_one_person() -> None:
    for one, other in (("ada", "Ada"), ("ada@a", "ada@b"), (" ada ", "ADA@x")):
        assert approval.same_person(one, other) and approval.same_person(other, one)
    for one, other in (("ada", "bob"), ("ada@x", "bob@x")):
        assert not approval.same_person(one, other)
    assert not approval.same_person("ada", None)
