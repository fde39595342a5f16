"""Steps in idem.toml: what they may say, what they make, and the mistakes, each with the setting that has it."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fix_desk import run

from idem.errors import ConfigError, Unrenderable
from idem.outbox.config import explain, load
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.outcomes import Refused, Succeeded
from idem.outbox.domain.plan import StepEnd

RIDES = (Path(__file__).parent / "rides.toml").read_text().replace("TODAY", str(date.today()))
RIDE = {"ride": "r1", "amount": 900}
CHARGED = StepEnd(1, "charge", "succeeded", "pay_1", "succeeded", {"amount": 900})
BOOKED = StepEnd(2, "book", "succeeded", "book_1", "succeeded")
AT = 'operations."rides.book"'


@pytest.fixture
def write(tmp_path: Path) -> Path:
    return tmp_path / "idem.toml"


def found(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return {each.where: f"{each.level}: {each.what}. {each.do}" for each in explain(path, {})}


def rides(path: Path, text: str = RIDES) -> OperationSpec:
    path.write_text(text)
    return load(path, {}).operations["rides.book"]


def request(operation: OperationSpec, step: str, *ends: StepEnd, **params: Any) -> Any:
    known = operation.at(step)
    assert known is not None
    return known.request_of({**RIDE, **params}, {end.name: end for end in ends})


def test_the_sound_one(write: Path) -> None:
    # "to" is rendered only where `when` has found an address.
    assert found(write, RIDES) == {}


def test_the_steps_are_in_the_order_of_a_plan(write: Path) -> None:
    operation = rides(write)
    steps = [each.step for each in operation.steps if each.step is not None]
    assert [(s.name, s.kind, s.on_refusal, s.undoes, s.completes) for s in steps] == [
        ("charge", "call", "stop", None, False),
        ("book", "call", "compensate", None, True),
        ("receipt", "call", "operator", None, False),
        ("refund", "call", "stop", "charge", False),
    ]
    assert {(each.provider, each.account, each.kind) for each in operation.steps} == {("bank", "main", "provider")}


def test_a_request_sees_the_results_before_it(write: Path) -> None:
    operation = rides(write)
    book = request(operation, "book", CHARGED)
    assert (book.path, book.headers) == ("/bookings", {"X-Payment": "pay_1"})
    assert book.json == {"paid": 900, "why": "paid by pay_1"}
    refund = request(operation, "refund", CHARGED)
    assert (refund.path, refund.json) == ("/payments/pay_1/refunds", {"amount": 900})
    receipt = request(operation, "receipt", CHARGED, BOOKED, email="a@b.example")
    assert receipt.json == {"to": "a@b.example", "booking": "book_1"}


def test_a_result_that_is_not_there_is_never_sent_as_nothing(write: Path) -> None:
    operation = rides(write)
    with pytest.raises(Unrenderable, match=r"the result idem\.steps\.charge\.reference is missing"):
        request(operation, "book", StepEnd(1, "charge", "succeeded", None, "succeeded", {"amount": 900}))


def test_a_param_takes_the_place_of_no_result(write: Path) -> None:
    operation = rides(write)
    stranger = {"steps": {"charge": {"reference": "mine"}}}
    assert request(operation, "book", CHARGED, idem=stranger).headers == {"X-Payment": "pay_1"}


@pytest.mark.parametrize(
    ("when", "params", "wanted"),
    [
        ('{ "/email" = { exists = true } }', {}, False),
        ('{ "/email" = { exists = true } }', {"email": None}, True),
        ('{ "/ride" = ["r1", "r2"], "/amount" = 900 }', {}, True),
        ('{ "/ride" = ["r1", "r2"], "/amount" = 901 }', {}, False),
        ('{ "/idem/steps/charge/fields/amount" = 900 }', {}, True),
        ('{ "/idem/steps/charge/outcome" = "skipped" }', {}, False),
    ],
)
def test_a_step_may_have_a_condition(write: Path, when: str, params: Any, wanted: bool) -> None:
    receipt = rides(write, RIDES.replace('{ "/email" = { exists = true } }', when)).at("receipt")
    assert receipt is not None and receipt.step is not None and receipt.step.when is not None
    assert receipt.step.when({**RIDE, **params}, {"charge": CHARGED, "book": BOOKED}) is wanted


def test_the_answers_say_what_the_steps_have_come_to(write: Path) -> None:
    operation = rides(write)
    steps = {"charge": CHARGED, "book": BOOKED}
    told = operation.answer(Succeeded("book_1", "succeeded", steps=steps), "i1")
    assert (told.status, told.body) == (201, b'{"payment":"pay_1","booking":"book_1"}')
    refused = operation.answer(Refused(None, "declined", steps={"charge": StepEnd(1, "charge", "refused")}), "i1")
    assert (refused.status, refused.body) == (402, b'{"charge":"refused"}')


SECOND = 'name = "book"\nprovider = "bank"'

MISTAKES = [
    # (what is written instead of what; where; a word of the finding)
    ('label = "ride {ride}"', 'label = "{ride}"\nprovider = "bank"', ".provider", "each has a provider of its own"),
    ('label = "ride {ride}"', 'label = "{ride}"\npath = "/x"', ".path", '[[operations."rides.book".steps]]'),
    ('"step:book"', '"exists"', ".completes_when", "step:NAME"),
    ('"step:book"', '"step:bok"', ".completes_when", "Did you mean book?"),
    ('"step:book"', '"step:charge"', ".steps.1.on_refusal", "would undo what the client's answer says"),
    (SECOND, 'name = "charge"\nprovider = "bank"', ".steps.1.name", "two steps charge"),
    (SECOND, 'name = "Book"\nprovider = "bank"', ".steps.1.name", "no name of a step"),
    (SECOND, 'provider = "bank"', ".steps.1.name", "missing"),
    (SECOND, 'name = "book"\nprovider = "bonk"', ".steps.1.provider", "Did you mean bank?"),
    (SECOND, 'name = "book"\nprovider = "bank"\naccount = "man"', ".steps.1.account", "Did you mean main?"),
    (SECOND, 'name = "book"\nprovider = "bank"\nacount = "main"', ".steps.1.acount", "Did you mean account?"),
    ('name = "refund"', 'name = "refund"\nwehn = {}', ".steps.0.undo.wehn", "Did you mean when?"),
    ('name = "refund"', 'name = "book"', ".steps.1.name", "two steps book"),
    ('name = "refund"', 'name = "refund"\non_refusal = "stop"', ".steps.0.undo.on_refusal", "an operator decides"),
    ('name = "refund"', 'name = "refund"\nundo = {}', ".steps.0.undo.undo", "not undone itself"),
    ('on_refusal = "compensate"\n', "", ".steps.1.on_refusal", "nothing says what follows"),
    ('on_refusal = "compensate"', 'on_refusal = "stop"', ".steps.1.on_refusal", "leave charge done"),
    ('on_refusal = "compensate"', 'on_refusal = "undo"', ".steps.1.on_refusal", "'stop', 'compensate' or 'operator'"),
    ('path = "/bookings"', 'path = "bookings"', ".steps.1.path", "begins with one slash"),
    ('path = "/bookings"', 'path = "/bookings/{idem.steps.book.reference}"', ".steps.1.path", "not there yet"),
    ('path = "/bookings"', 'path = "/bookings/{idem.steps.receipt.reference}"', ".steps.1.path", "not there yet"),
    ('path = "/bookings"', 'path = "/bookings/{idem.steps.chrge.reference}"', ".steps.1.path", "Did you mean charge?"),
    ('path = "/bookings"', 'path = "/bookings/{idem.steps.charge}"', ".steps.1.path", "is no value"),
    ('path = "/bookings"', 'path = "/bookings/{idem.steps.charge.id}"', ".steps.1.path", "is no value"),
    ('path = "/bookings"', 'path = "/bookings/{idem.steps.charge.fields}"', ".steps.1.path", "is no value"),
    ('path = "/bookings"', 'path = "/bookings/{idem.reference}"', ".steps.1.path", "not available here"),
    ('charge.fields.amount}", why', 'charge.fields.amont}", why', ".steps.1.body", "Did you mean amount?"),
    ('{ride}" }', '{ried}" }', ".steps.0.body", "Did you mean ride?"),
    ("X-Payment", "Idempotency-Key", ".steps.1.headers.Idempotency-Key", "idem sets it"),
    ("X-Payment", "Authorization", ".steps.1.headers", "a credential"),
    ('when = { "/email"', 'when = { "/emial"', ".steps.2.when", "Did you mean email?"),
    ('when = { "/email"', 'when = { "email"', ".steps.2.when", "not a JSON pointer"),
    ('when = { "/email" = { exists', 'when = { "/email" = { exits', ".steps.2.when", "a list of values"),
    ('when = { "/email"', 'when = { "/idem/steps/recept/outcome"', ".steps.2.when", "the result of no step"),
    ('when = { "/email"', 'when = { "/idem/charge/outcome"', ".steps.2.when", "the result of no step"),
    ('payment = "{idem.steps.charge', 'payment = "{idem.steps.carge', ".answer.succeeded.body", "Did you mean charge?"),
    ('charge.reference}", booking', 'receipt.status}", booking', ".answer.succeeded.body", "receipt may not have been"),
    ("refund.reference?", "refund.reference", ".answer.refused.body", "refund may not have been made"),
]


@pytest.mark.parametrize(("old", "new", "where", "word"), MISTAKES)
def test_each_mistake_names_its_setting(write: Path, old: str, new: str, where: str, word: str) -> None:
    assert old in RIDES
    findings = found(write, RIDES.replace(old, new, 1))
    assert word in findings[AT + where], findings


def test_what_may_be_skipped_is_not_needed_unseen(write: Path) -> None:
    skipped = RIDES.replace(SECOND, 'name = "book"\nwhen = { "/ride" = "r1" }\nprovider = "bank"')
    said = found(write, skipped)[f"{AT}.steps.2.body"]
    assert "{idem.steps.book.reference} may be missing, because book may not have been made" in said
    same = skipped.replace('when = { "/email"', 'when = { "/ride" = "r1", "/email"')
    assert found(write, same) == {}
    asked = skipped.replace('when = { "/email"', 'when = { "/idem/steps/book/outcome" = "succeeded", "/email"')
    assert found(write, asked) == {}


def test_a_reference_that_the_provider_never_says(write: Path) -> None:
    said = found(write, RIDES.replace('reference = "/id", ', ""))
    assert "nothing says where the reference is" in said[f"{AT}.steps.1.headers.X-Payment"]


def test_the_request_of_each_step_is_checked_as_that_of_an_operation(write: Path) -> None:
    lookup = 'lookup.by_reference = { path = "/p?r={idem.key}", match = "/r" }\n'
    said = found(write, RIDES.replace("accounts.main", f"{lookup}accounts.main", 1))
    calls = ["steps.0", "steps.0.undo", "steps.1", "steps.2"]
    assert {f"{AT}.{call}.body" for call in calls} == {where for where in said if "carry the key" in said[where]}
    tag = RIDES.replace("accounts.main", 'deployment_tag = { at = "/amount" }\naccounts.main', 1)
    said = found(write, tag.replace('amount = "{amount}", ride', "amount = 5, ride"))
    assert "writes another value there" in said[f"{AT}.steps.0.body"]


def test_steps_are_an_array_of_tables(write: Path) -> None:
    head = RIDES.partition("[[operations")[0]
    said = found(write, head + '[operations."rides.book".steps]\nname = "x"\n')[f"{AT}.steps"]
    assert "valid list" in said and "[[operations" in said
    assert "0 steps" in found(write, head.replace("label", "steps = []\nlabel"))[f"{AT}.steps"]
    many = "".join(f'[[operations."rides.book".steps]]\nname = "s{n}"\nprovider = "bank"\npath = "/x"\n'
                   'on_refusal = "operator"\n' for n in range(21))  # fmt: skip
    assert "21 steps" in found(write, head.replace("step:book", "step:s3") + many)[f"{AT}.steps"]
    name = RIDES.replace('operations."rides.book"', "operations.rides.book")
    assert "written in quotes" in found(write, name)["operations.rides.book"]


def test_one_call_has_no_steps_to_speak_of(write: Path) -> None:
    head = RIDES.partition('[operations."rides.book"]')[0]
    text = head + '[operations.pay]\nprovider = "bank"\npath = "/p/{idem.steps.charge.reference}"\n'
    assert "not available here" in found(write, text)["operations.pay.path"]


def test_every_mistake_at_once(write: Path) -> None:
    text = RIDES.replace('path = "/payments"', 'path = "p"').replace('"/bookings"', '"b"').replace('"/mails"', '"m"')
    write.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(write, {})
    assert [problem.partition(" (line")[0] for problem in raised.value.problems] == [
        f"{AT}.steps.{place}.path" for place in range(3)
    ]


def test_every_setting_of_a_step_is_shown(write: Path) -> None:
    write.write_text(RIDES)
    shown = run(["config", "show", "--config", str(write)], {}).out
    for line in ("steps.0.undo.name +refund", "steps.1.on_refusal +compensate", "steps.2.name +receipt"):
        assert re.search(rf"operations\.rides\.book\.{line}", shown), shown
