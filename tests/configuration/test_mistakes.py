"""Every mistake in a configuration is a finding that names the setting and says what to do; never a traceback."""

import tomllib
from datetime import date, timedelta
from pathlib import Path

import pytest
from configuration.mistakes import PROVIDER, SOUND, within
from hypothesis import given
from hypothesis import strategies as st

from idem.errors import ConfigError
from idem.outbox.config import database_address, explain, load


@pytest.fixture
def write(tmp_path: Path) -> Path:
    return tmp_path / "idem.toml"


def found(path: Path, text: str, env: dict[str, str] | None = None) -> dict[str, str]:
    path.write_text(text)
    return {finding.where: f"{finding.level}: {finding.what}. {finding.do}" for finding in explain(path, env or {})}


def test_the_sound_one(write: Path) -> None:
    assert found(write, SOUND) == {}
    assert load(write, {}).database_url is None
    with pytest.raises(ConfigError, match="IDEM_DATABASE_URL"):
        database_address(write, {})


MISTAKES = [
    # (what is written instead of what, or added; where; a word of the finding)
    ("environment = 'Prod!'", "environment", "pattern"),
    ("[worker]\nleese = '60s'", "worker.leese", "Did you mean lease?"),
    ("[worker]\nlease = '60 parsecs'", "worker.lease", "250ms, 5s, 2m"),
    ("[worker]\nslots = 0", "worker.slots", "greater than or equal to 1"),
    ("[worker]\nslots = 'many'", "worker.slots", "integer"),
    ("[worker]\nlease = '4s'", "worker", "no call would ever begin"),
    ("[worker]\nlease = '21s'", "providers.bank.deadline", "do not fit into the lease"),
    ("[reconciler]\nlease = '45s'", "providers.bank.deadline", "Make reconciler.lease longer"),
    ("[werker]\nlease = '60s'", "werker", "Did you mean worker?"),
    ("worker = 3", "worker", "must be a table"),
    ("providors = 3", "providors", "Did you mean providers?"),
    ("[database]\nurl = 'postgresql://a:secret@h/d'", "database.url", "a password never stands"),
    ("[database]\nurl = 'mysql://h/d'", "database.url", "PostgreSQL"),
    ("[database]\ndurability = 'maybe'", "database.durability", "'single', 'synchronous' or 'asynchronous'"),
    ("[database]\nurl_from = 'x'", "database.url_from", "a secret never stands in idem.toml"),
    ("[database]\nurl_from = { env = 'A', file = 'b' }", "database.url_from", "either env or file"),
    ("[database]\nurl_from = { env = 'NO_URL' }", "database.url_from", "NO_URL is not set"),
]

VERIFIED = f'verified = "{date.today()}"'

PROVIDER_MISTAKES = within(
    "providers.bank",
    "[providers.bank]",
    [
        ('retention = "24h"', 'retention = "24h", retentions = "1h"', ".key.retentions", "Did you mean retention?"),
        ('retention = "24h"', 'retention = "30m"', ".key.retention", "there will be no replays"),
        ('carrier = "header"', 'carrier = "cookie"', ".key.carrier", "'header', 'body' or 'none'"),
        ('carrier = "header"', 'carrier = "none"', ".key.replay", "second effect"),
        ('replay = "stored"', 'replay = "none"', ".on_unsettleable", "nothing can tell"),
        ('{ shape = "/error/code" }', '{ shape = "error.code" }', ".errors.shape", "not a JSON pointer"),
        ('{ shape = "/error/code" }', "{}", ".errors.shape", "a proxy's"),
        ('says = "final"', 'says = "finale"', ".outcome.0.says", "must be one of"),
        ('says = "final"', 'says = "absent"', ".outcome.0", "must name its HTTP status"),
        ('says = "final"', 'says = "final", status = "6xx"', ".outcome.0.status", "not an HTTP status"),
        ('"/status" = "succeeded"', 'status = "succeeded"', ".outcome.0", "not a JSON pointer"),
        ('"/status" = "succeeded"', '"/status" = []', ".outcome.0.when", "a list of values"),
        ('[{ says = "final", when = { "/status" = "succeeded" } }]', "[]", ".outcome", "no rule"),
        ('"https://bank.example"', '"bank.example"', ".accounts.main.origin", "scheme, host and port"),
        ('"https://bank.example"', '"https://bank.example/v1"', ".accounts.main.origin", "no path"),
        ('"https://bank.example"', '"https://bank.example:x"', ".accounts.main.origin", "ort"),
        ('"https://bank.example"', '"https://a:b@bank.example"', ".accounts.main.origin", "no credentials"),
        ('"https://bank.example"', '"http://bank.example"', ".accounts.main.origin", "unencrypted"),
        ('{ origin = "https://bank.example" }', "{}", ".accounts.main.origin", "missing"),
        ('accounts.main = { origin = "https://bank.example" }', "", ".accounts", "no account"),
        ('schedule = ["1m"]', ".schedule", "Add a later time"),
        ('flight_limit = "1s"', ".flight_limit", "own deadline"),
        (VERIFIED, 'verified = "x"', ".verified", "2026-11-28"),
        (VERIFIED, "", ".verified", "warning: nothing says when"),
        (VERIFIED, f'verified = "{date.today() - timedelta(days=367)}"', ".verified", "367 days ago"),
        (VERIFIED, f'verified = "{date.today() + timedelta(days=9)}"', ".verified", "error: 20"),
        ("[providers.bank]", "[providers.local]", "providers.local", "call no provider"),
        ("[providers.bank]", '[providers."my bank"]', "providers.my bank", "not a usable name"),
        ('lookup.by_key = { path = "/p" , match = "/k"}', ".lookup", "asks about no particular call"),
        ('lookup.by_key = { path = "/p?k={idem.key}" }', ".lookup.by_key.match", "another one's object"),
        (
            'lookup.by_reference = { path = "/p?k={idem.key}", match = "/k" }',
            "operations.pay.body",
            "the call would be made again",
        ),
        ('lookup.by_id = { path = { p_ = "/p/{idem.key}" } }', ".lookup", "not available here"),
        (
            'lookup.by_events = { path = "/e?t={idem.sent_at}", match = "/key" }',
            ".lookup.by_events.types",
            "copies of the object",
        ),
        ('list = { path = "/p?t={idem.since}" }', ".list", "dedicated_account = true"),
        ('list = { path = "/p?t={idem.since}", page = { style = "cursr" } }', ".list.page.style", "'cursor'"),
        ('cancel_by_key = { path = "/c" }', ".cancel_by_key", "put {idem.key} into"),
        ('cancel_by_key = { path = "/c/{idem.key}", body = { a = 1979-05-27 } }', ".cancel_by_key", "JSON"),
        ('settle = ["cancel_by_key"]', ".settle", "cannot settle"),
        (
            'says = "final", when',
            'says = "not_executed:request", status = [503] }, { says = "final", when',
            ".outcome.0.status",
            "a 503 may come from a proxy",
        ),
    ],
)

OPERATION_MISTAKES = within(
    "operations.pay",
    'provider = "bank"',
    [
        ('provider = "bank"', 'provider = "bonk"', ".provider", "Did you mean bank?"),
        ('account = "man"', ".account", "Did you mean main?"),
        ('key_ttl = "1h"', "", "short_ttl = true"),
        ('method = "GET"', ".method", "'POST'"),
        ('keyttl = "1d"', ".keyttl", "Did you mean key_ttl?"),
        ('start_within = "9d"', ".key_ttl", "longer than its key"),
        ('label = "{"', ".label", "lone"),
        ('headers = { Authorization = "x" }', ".headers", "account"),
        ('headers = { X = "ü" }', ".headers", "visible ASCII"),
        ('headers = { Host = "x" }', ".headers", "not a header"),
        ("answer.succeeded = { status = 500 }", ".answer.succeeded.status", "499"),
        ('answer.succeeded = { status = 201, body = "{idem.key}" }', ".answer.succeeded.body", "idem.intent"),
        ('path = "/payments"', "", ".path", "missing"),
        ('path = "/payments"', 'path = "payments"', ".path", "begins with one slash"),
        ('path = "/payments"', 'path = "/payments/{id?}"', ".path", "cannot be optional"),
        ('path = "/payments"', 'path = "/payments/{idd}"', ".path", "not a param of the schema"),
        ('"{amount}"', '"{amuont}"', ".body", "Did you mean amount?"),
        ('"{amount}"', '"{idem.secret}"', ".body", "not available here"),
        ('"{amount}"', "2026-01-01", ".body", "must be a JSON value"),
        ('"{amount}"', "nan", ".body", "must be a JSON value"),
        ('required = ["amount"]', "", ".body", "may be missing"),
        ('type = "object"', 'type = "objekt"', ".params", "/type"),
        ('type = "integer"', '"$ref" = "https://x.example/y"', ".params", "leaves the schema"),
        ('type = "integer"', '"$ref" = "#/$defs/y"', ".params", "leads nowhere"),
        ("[operations.pay.params]", "[operations.pay.param]", ".param", "Did you mean params?"),
        ("[operations.pay]", "[operations.payments.create]", "operations.payments.create", "written in quotes"),
        ("[operations.pay]", "[operations.Pay]", "operations.Pay", "not a usable name"),
    ],
)


@pytest.mark.parametrize(("added", "where", "word"), MISTAKES)
def test_mistakes_in_the_installation(write: Path, added: str, where: str, word: str) -> None:
    findings = found(write, f"{added}\n{SOUND}")
    assert word in findings[where], findings


@pytest.mark.parametrize(("old", "new", "where", "word"), [*PROVIDER_MISTAKES, *OPERATION_MISTAKES])
def test_mistakes_in_providers_and_operations(write: Path, old: str, new: str, where: str, word: str) -> None:
    assert old in SOUND
    findings = found(write, SOUND.replace(old, new, 1))
    assert word in findings[where], findings


def test_all_of_them_at_once_and_errors_first(write: Path) -> None:
    write.write_text(
        "envirnment = 'x'\n[worker]\nleese = 1\n"
        + SOUND.replace('"header"', '"cookie"').replace("/payments", "payments").replace('"integer"', '"intger"')
        + '[providers.second]\naccounts.a = {origin = "x"}\n[operations.other]\nprovider = "thrid"\npath = "/{"\n'
        + '[operations.third]\nprovider = "bank"\npath = "/x"\nkey_ttl = "1m"\n'
    )
    findings = explain(write, {})
    assert {finding.where for finding in findings if finding.level == "error"} == {
        "envirnment",
        "worker.leese",
        "providers.bank.key.carrier",
        "operations.pay.path",
        "operations.pay.params",
        "providers.second.accounts.a.origin",
        "operations.other.path",
        "operations.third",
    }
    assert [finding.level for finding in findings] == sorted(finding.level for finding in findings)
    with pytest.raises(ConfigError) as raised:
        load(write, {})
    assert len(raised.value.problems) == 8


def test_no_operation_is_another_mistake_than_a_broken_one(write: Path) -> None:
    assert "there is no operation" in found(write, PROVIDER)["operations"]
    assert set(found(write, SOUND.replace('path = "/payments"', ""))) == {"operations.pay.path"}
    wrong = PROVIDER.replace('carrier = "header"', 'carrier = "pigeon"')
    assert wrong != PROVIDER
    assert "operations" not in found(write, 'app = "shop:idem"\n' + wrong), "the application may define some"


def test_the_line_is_named(write: Path) -> None:
    write.write_text('environment = "Prod!"\n\n[worker]\npoll = 4\nslots = 0\n' + SOUND.replace("final", "finale"))
    lines = {finding.where: finding.line for finding in explain(write, {}) if finding.level == "error"}
    assert lines == {"environment": 1, "worker.slots": 5, "providers.bank.outcome.0.says": 11}
    write.write_text(
        "[providers.bank]\n[[providers.bank.outcome]]\nsays = 'final'\n[[providers.bank.outcome]]\nsays = 'x'\n"
        "[operations.\"a.b\"]\nprovider = 'bank'\n"
    )
    lines = {finding.where: finding.line for finding in explain(write, {})}
    assert (lines["providers.bank.outcome.1.says"], lines['operations."a.b".path']) == (5, 6)


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.toml"
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file\. Name another one with IDEM_CONFIG"):
        load(missing, {})
    (finding,) = explain(missing, {})
    assert (finding.level, finding.where, finding.what) == ("error", str(missing), "there is no such file")
    for content in (b"[a\n", b"\xff", b"a = 1\na = 2", b"a = " + b"[" * 10_000):
        missing.write_bytes(content)
        assert explain(missing, {})[0].level == "error"
        with pytest.raises(ConfigError, match="it is"):
            load(missing, {})
    (finding,) = explain(tmp_path, {})
    assert "cannot be read" in finding.what
    # A device has no end: no more of it is read than a file may have.
    with pytest.raises(ConfigError, match=r"/dev/zero: it has more than 4194304 bytes, too many for an idem\.toml"):
        load(Path("/dev/zero"), {})


def test_idem_config_names_the_file(write: Path) -> None:
    write.write_text(SOUND)
    assert load(env={"IDEM_CONFIG": str(write)}).path == write


EXAMPLE = tomllib.loads(Path(__file__).with_name("idem.toml").read_text())


def toml(value: object) -> str:
    """Enough of TOML for the values of the example."""
    match value:
        case dict():
            return "{" + ", ".join(f"{toml(str(name))} = {toml(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case bool():
            return str(value).lower()
        case str():
            return '"' + "".join(f"\\U{ord(c):08x}" if c in '"\\' or not c.isprintable() else c for c in value) + '"'
        case _:
            return repr(value)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for name, item in below for found in places(item, (*path, name)))]


def replaced(value: object, path: tuple[str | int, ...], by: object) -> object:
    if not path:
        return by
    if isinstance(value, dict):
        return {name: replaced(item, path[1:], by) if name == path[0] else item for name, item in value.items()}
    assert isinstance(value, list)
    return [replaced(item, path[1:], by) if index == path[0] else item for index, item in enumerate(value)]


WRONG = st.sampled_from(
    [0, -1, 2**70, 1.5, True, "", "x", "{", "/{a}", "5s", "ü", [], [1], ["x"], {}, {"x": 1}, {"env": "X"}, [[]], [{}]]
)


@given(st.sampled_from(places(EXAMPLE)[1:]), WRONG)
def test_no_value_anywhere_is_a_traceback(write: Path, path: tuple[str | int, ...], wrong: object) -> None:
    text = "\n".join(
        f"{toml(str(name))} = {toml(value)}"
        for name, value in dict(replaced(EXAMPLE, path, wrong)).items()  # type: ignore[call-overload]
    )
    write.write_text(text)
    env = {"BANK_TOKEN": "a", "BANK_TOKEN_SECOND": "b", "BANK_API_KEY": "c", "OLDBANK_TOKEN": "d"}
    findings = explain(write, env)
    if not any(finding.level == "error" for finding in findings):
        load(write, env)
