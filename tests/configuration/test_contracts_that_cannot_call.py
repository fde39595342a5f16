"""Configurations that were taken and could make no call, and what an event says beside its signature."""

from pathlib import Path
from typing import Any

import fix_schemes as sign
import pytest

from idem.outbox.calls.request_head import check_account
from idem.outbox.config import explain, load
from idem.outbox.domain.contract import Account, Response
from idem.outbox.providers import response
from idem.outbox.providers.contract_checks import Finding
from idem.outbox.providers.errors import ErrorShape
from idem.outcomes import Refused
from idem.sending import Question

ENV = {"TOK": "abcdefgh12345678", "HEX": sign.ADYEN}
KEY = "9c5b94b1-35ad-49bb-b118-8e8fc24abf80"

FILE = Path(__file__).with_name("contracts_that_cannot_call_file.toml").read_text()


def findings(tmp_path: Path, **said: str) -> list[Finding]:
    words = {"provider": "", "key": "Idempotency-Key", "origin": "https://api.acme.example", "account": ""}
    file = tmp_path / "idem.toml"
    file.write_text(FILE.format(**{**words, "operation": "", **said}))
    return explain(file, ENV)


def errors(tmp_path: Path, **said: str) -> list[str]:
    return [found.where for found in findings(tmp_path, **said) if found.level == "error"]


def test_the_file_itself_is_right(tmp_path: Path) -> None:
    assert errors(tmp_path) == []


@pytest.mark.parametrize("origin", [
    "https://h:0", "https://a..b", "https://-x", "https://h x", "https://h%20x", "https://*.x", " https://h",
    "https://" + "a" * 64 + ".example", "https://exa\\nmple", "https://h\\t", "https://a;b",
])  # fmt: skip
def test_an_origin_that_nobody_can_call_is_refused(tmp_path: Path, origin: str) -> None:
    assert errors(tmp_path, origin=origin) == ["providers.acme.accounts.main.origin"]


@pytest.mark.parametrize("origin", [
    "https://[::1]:8443", "http://127.0.0.1:9", "https://a_b.example.", "https://xn--bcher-kva.example", "HTTPS://H/",
])  # fmt: skip
def test_an_origin_that_can_be_called_is_taken(tmp_path: Path, origin: str) -> None:
    assert errors(tmp_path, origin=origin) == []


def test_a_host_that_is_no_idna_is_no_crash_of_the_worker() -> None:
    check_account(Account("main", "https://xn--a", {}))


@pytest.mark.parametrize("account", [
    'headers = { Accept = { env = "TOK" } }',
    'headers = { content-type = { env = "TOK" } }',
    'signature = { secret = { env = "TOK" }, header = "Content-Type" }',
    'signature = { secret = { env = "TOK" }, timestamp_header = "accept" }',
])  # fmt: skip
def test_an_account_sets_no_header_that_every_request_has(tmp_path: Path, account: str) -> None:
    assert len(errors(tmp_path, account=account)) == 1


@pytest.mark.parametrize("name", ["Accept-Encoding", "Host", "content-length", "Content-Type", "Cookie"])
def test_the_key_has_a_header_that_can_carry_it(tmp_path: Path, name: str) -> None:
    assert errors(tmp_path, key=name) == ["providers.acme.key.name"]


@pytest.mark.parametrize("where", ["provider", "operation"])
def test_a_header_is_said_once(tmp_path: Path, where: str) -> None:
    assert len(errors(tmp_path, **{where: 'headers = { X-A = "1", x-a = "2" }'})) == 1


@pytest.mark.parametrize("where, setting", [
    ("operation", 'key_ttl = "99999999999d"'), ("operation", "answer_ttl = 1e15"),
    ("provider", "pending_schedule = [60, 1e15]"),
    ("provider", 'limits = { concurrency = 3000000000 }'),
])  # fmt: skip
def test_what_the_database_cannot_hold_is_refused(tmp_path: Path, where: str, setting: str) -> None:
    assert len(errors(tmp_path, **{where: setting})) == 1


@pytest.mark.parametrize("provider, operation, warned", [
    ('lookup = { by_reference = { path = "/p/{idem.segment.4}?r={idem.key}", match = "/r" } }', "",
     'operations."payments.create".path'),
    ('lookup = { by_reference = { path = "/p/{idem.segment.1}?r={idem.key}", match = "/r" } }', "", None),
    ('lookup = { agree = 50, by_reference = { path = "/p?r={idem.key}", match = "/r" } }', "",
     "providers.acme.lookup.agree"),
    ('pending_limit = "1d"\npending_schedule = ["3d"]', "", "providers.acme.pending_schedule"),
])  # fmt: skip
def test_what_never_settles_is_said(tmp_path: Path, provider: str, operation: str, warned: str | None) -> None:
    usual = {found.where for found in findings(tmp_path)}
    told = {found.where for found in findings(tmp_path, provider=provider, operation=operation)} - usual
    assert told == ({warned} if warned else set())


ADYEN = """
[providers.acme.webhook]
scheme = "adyen"
key = "/merchantReference"
reference = "/pspReference"
secrets = [{ env = "HEX" }]
"""
RULES = """
[[providers.acme.outcome]]
says = "refused"
when = { "/eventCode" = "AUTHORISATION", "/success" = "false" }
"""


def test_what_adyen_does_not_sign_says_nothing(tmp_path: Path) -> None:
    findings(tmp_path)
    file = tmp_path / "idem.toml"
    # The words of HTTP answers are read first, as in the example of Adyen.
    file.write_text(file.read_text().replace('"busy"] }', '"busy"] }' + RULES) + ADYEN)
    provider: Any = load(file, ENV).providers["acme"]
    item = sign.by_adyen(sign.notification(success="false", merchantReference=KEY))
    for more in ({}, {"id": "pay_1", "status": "paid"}, {"metadata": {"idem_key": "another"}}):
        assert sign.check(sign.AdyenSignatures(), sign.batch({**item, **more}), {}, sign.ADYEN) is None
        (event,) = provider.read_events(sign.batch({**item, **more}))
        assert (event.key, event.reference) == (KEY, item["pspReference"])
        assert event.said is None or isinstance(event.said, Refused), event.said


@pytest.mark.parametrize("setting", ['events = "/others"', 'type = "/additionalData/type"'])
def test_of_adyen_nothing_is_read_that_is_not_signed(tmp_path: Path, setting: str) -> None:
    findings(tmp_path)
    file = tmp_path / "idem.toml"
    file.write_text(file.read_text() + ADYEN + setting + "\n")
    assert [found.where for found in explain(file, ENV) if found.level == "error"] == [
        f"providers.acme.webhook.{setting.partition(' ')[0]}"
    ]


@pytest.mark.parametrize("line", ["providers.acme = 1", 'operations."payments.create" = []', "sweeper = 3"])
def test_what_is_no_table_is_told_what_to_do(tmp_path: Path, line: str) -> None:
    file = tmp_path / "idem.toml"
    file.write_text(line)
    (found,) = (each for each in explain(file, ENV) if each.level == "error")
    assert found.what == "it must be a table"
    assert found.do


@pytest.mark.parametrize("page", ["", ', page = { style = "after_id", parameter = "after" }'])
def test_an_error_beside_a_list_is_no_absence(tmp_path: Path, page: str) -> None:
    look = 'path = "/p?r={idem.key}", object = "/data/0", match = "/r", empty = "/data"' + page
    assert errors(tmp_path, provider=f"lookup = {{ by_reference = {{ {look} }} }}") == []
    provider: Any = load(tmp_path / "idem.toml", ENV).providers["acme"]
    question = Question(KEY, None, awaiting=False, path="/payments")
    (request,) = provider.questions(question)

    def read(body: bytes) -> str:
        return type(provider.read_lookup(Response(200, {}, body, True), question, request)[0]).__name__

    assert read(b'{"data": []}') == "Absent"
    assert read(b'{"data": [], "error": {"code": "timeout"}}') == "CouldNotAsk"
    if page:
        assert read(b'{"data": [{"id": "p", "r": "other"}], "error": {"code": "timeout"}}') == "CouldNotAsk"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"data": []}', False), (b'{"data": [], "error": null}', False), (b'{"data": [], "error": ""}', False),
        (b'{"data": [], "error": null, "errors": []}', False), (b'{"data": [], "error": {}}', False),
        (b'{"data": [], "error": "busy"}', True), (b'{"data": [], "error": 0}', True),
        (b'{"data": [], "error": null, "errors": [{"code": 1}]}', True), (b"[]", False), (b"", False),
    ],
)  # fmt: skip
def test_an_error_that_says_nothing_hides_no_absence(body: bytes, told: bool) -> None:
    errors = ErrorShape(shape=["/error", "/errors"])
    assert errors.is_error(response.read(Response(200, {}, body, True))) is told
