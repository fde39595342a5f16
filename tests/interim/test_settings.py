"""`completes_when` and `answer.interim` in idem.toml: what they are made into, and what is explained."""

from datetime import date
from pathlib import Path

import pytest

from idem.outbox.config import explain, load
from idem.outcomes import Pending

PROVIDER = """
[providers.bank]
key = { carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }
errors = { shape = "/error/code" }
object = { reference = "/id", status = "/status", fields = { next = "/next_action/url" } }
lookup = { horizon = "10s", by_id = { path = "/payments/{idem.reference}" } }
webhook = { key = "/data/key", secrets = [{ env = "SECRET" }] }
outcome = [
    { says = "final", when = { "/status" = "succeeded" } },
    { says = "answer", when = { "/status" = "requires_action" } },
    { says = "pending", when = { "/status" = "processing" } },
]
accounts.main = { origin = "https://bank.example" }
[operations.pay]
provider = "bank"
path = "/payments"
params = { type = "object" }
""".replace("[providers.bank]\n", f'[providers.bank]\nverified = "{date.today()}"\n')
ENV = {"SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
ANSWER = '    { says = "answer", when = { "/status" = "requires_action" } },\n'
PENDING = '    { says = "pending", when = { "/status" = "processing" } },\n'
WEBHOOK = 'webhook = { key = "/data/key", secrets = [{ env = "SECRET" }] }\n'
LOOKUP = 'lookup = { horizon = "10s", by_id = { path = "/payments/{idem.reference}" } }\n'
FINAL, EXISTS = 'completes_when = "final"\n', 'completes_when = "exists"\n'
TOLD = 'answer.interim = { body = { go = "{next}", payment = "{idem.reference}", was = "{note?}" } }\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "idem.toml"


def found(file: Path, *left_out: str, more: str = "") -> dict[str, str]:
    text = PROVIDER
    for each in left_out:
        assert each in text
        text = text.replace(each, "")
    file.write_text(text + more)
    return {finding.where: f"{finding.level}: {finding.what}. {finding.do}" for finding in explain(file, ENV)}


def test_the_default_follows_the_contract(file: Path) -> None:
    for left_out, more, when in (
        ((), "", "exists"), ((), FINAL, "final"), ((ANSWER,), "", "final"), ((ANSWER,), EXISTS, "exists"),
    ):  # fmt: skip
        assert found(file, *left_out, more=more) == {}
        assert load(file, ENV).operations["pay"].completes_when == when
    assert load(file, ENV).operations["pay"].interim is None


def test_a_declared_interim_answer(file: Path) -> None:
    assert found(file, more=FINAL + TOLD) == {}
    render = load(file, ENV).operations["pay"].interim
    assert render is not None
    assert render(Pending("pay_1", "requires_action", {"next": "https://x.example"})) == {
        "go": "https://x.example", "payment": "pay_1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("left_out", "more", "where", "word"),
    [
        ((ANSWER, PENDING), EXISTS, "operations.pay.completes_when", "warning: no rule of provider bank says answer"),
        ((ANSWER, PENDING), TOLD, "operations.pay.answer.interim", "this changes nothing"),
        ((), TOLD, "operations.pay.answer.interim", "it is never told"),
        ((WEBHOOK,), "", "operations.pay.completes_when", "nobody asks after that"),
        ((WEBHOOK, LOOKUP), FINAL, "operations.pay.completes_when", "nothing can tell that"),
        ((), 'completes_when = "never"\n', "operations.pay.completes_when", "'exists'"),
        ((), 'answer.interim = { body = "{idem.intent}" }\n', "operations.pay.answer.interim.body", "not available"),
        ((), "answer.interim = { body = nan }\n", "operations.pay.answer.interim.body", "must be a JSON value"),
        ((), "answer.interim = {}\n", "operations.pay.answer.interim.body", "missing"),
    ],
)
def test_what_is_explained(file: Path, left_out: tuple[str, ...], more: str, where: str, word: str) -> None:
    findings = found(file, *left_out, more=more)
    assert word in findings.get(where, f"nothing, but {findings}")
