"""`webhook` in idem.toml: fail closed, and every mistake explained at the start."""

from datetime import date
from pathlib import Path

import pytest
from fix_desk import Desk, run
from fix_schemes import OPERATION
from fix_webhooks import FIRST, KEYS, OTHERS, SECOND

from idem.errors import ConfigError
from idem.outbox.config import explain, load
from idem.outbox.providers.contract_checks import Finding

WEBHOOK = '[providers.bank.webhook]\nkey = "/data/reference"\n'
HAS_SECRETS = '[providers.bank.accounts.main.webhook]\nsecrets = [{env = "HOOK"}, {env = "NEXT"}]\n'
KEY = 'key = { carrier = "header", name = "idempotency-key", replay = "stored", retention = "24h" }\n'
BASE = f"""
environment = "test"
[providers.bank]
{KEY}verified = "{date.today()}"
errors = {{ shape = "/error/code" }}
object = {{ reference = "/id", status = "/status" }}
outcome = [{{ says = "final", when = {{ "/status" = "succeeded" }} }}]
[providers.bank.accounts.main]
origin = "https://bank.example"
"""
ENV = {"HOOK": FIRST, "NEXT": SECOND, "OTHER": OTHERS}


def written(tmp_path: Path, *parts: str, base: str = BASE) -> Path:
    file = tmp_path / "idem.toml"
    file.write_text(base + "".join(parts) + OPERATION)
    return file


def findings(tmp_path: Path, *parts: str, env: dict[str, str] | None = None, base: str = BASE) -> list[Finding]:
    return explain(written(tmp_path, *parts, base=base), ENV if env is None else env)


def test_ib_103_several_secrets_of_an_account(tmp_path: Path) -> None:
    found = load(written(tmp_path, WEBHOOK, HAS_SECRETS), ENV)
    webhook = found.providers["bank"].webhook
    assert webhook is not None and webhook.secrets == {"main": (KEYS["first"], KEYS["second"])}
    assert found.providers["bank"].contract.events_settle
    assert found.warnings == ()
    assert not any(each in repr(found) + repr(found.providers) + repr(webhook) for each in (FIRST, str(KEYS["first"])))


def test_the_shorter_way_for_one_account(tmp_path: Path) -> None:
    found = load(written(tmp_path, WEBHOOK, 'secrets = [{env = "HOOK"}]\n'), ENV)
    webhook = found.providers["bank"].webhook
    assert webhook is not None and webhook.secrets == {"main": (KEYS["first"],)}


def test_ib_101_a_trailing_newline_is_left_out_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(FIRST + "\n")
    file = written(tmp_path, WEBHOOK, '[providers.bank.accounts.main.webhook]\nsecrets = [{file = "hook"}]\n')
    webhook = load(file, {}).providers["bank"].webhook
    assert webhook is not None and webhook.secrets == {"main": (KEYS["first"],)}
    (warning,) = explain(file, {})
    assert (warning.level, warning.where) == ("warning", "providers.bank.accounts.main.webhook.secrets.0")
    assert "newline" in warning.what


@pytest.mark.parametrize(
    "value", ["v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=", "whsk_abc", "sk_live_1", "whsec_a"]
)
def test_ib_101_a_secret_of_another_kind_stops_the_start(tmp_path: Path, value: str) -> None:
    file = written(tmp_path, WEBHOOK, HAS_SECRETS)
    with pytest.raises(ConfigError, match=r"providers\.bank\.accounts\.main\.webhook\.secrets\.0") as raised:
        load(file, ENV | {"HOOK": value})
    assert value not in str(raised.value)


def test_a_secret_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HOOK is not set"):
        load(written(tmp_path, WEBHOOK, HAS_SECRETS), {"NEXT": SECOND})


def test_ib_102_no_secret_is_said_at_the_start(tmp_path: Path) -> None:
    """It starts: a worker needs no webhooks. The endpoint refuses everything."""
    (warning,) = findings(tmp_path, WEBHOOK)
    assert (warning.level, warning.where) == ("warning", "providers.bank.webhook.secrets")
    assert "every event of that account is refused" in warning.what
    found = load(written(tmp_path, WEBHOOK), ENV)
    assert not found.providers["bank"].contract.events_settle


TWO = BASE + '[providers.bank.accounts.second]\norigin = "https://bank.example"\n'
SECOND_HAS = '[providers.bank.accounts.second.webhook]\nsecrets = [{env = "OTHER"}]\n'


@pytest.mark.parametrize("env", [{"OTHER": FIRST}, {"OTHER": SECOND}, {"OTHER": FIRST + "\n"}])
def test_hazard_75_two_accounts_with_one_secret_are_refused(tmp_path: Path, env: dict[str, str]) -> None:
    operation = OPERATION.replace('provider = "bank"', 'provider = "bank"\naccount = "main"')
    file = tmp_path / "idem.toml"
    file.write_text(TWO + WEBHOOK + HAS_SECRETS + SECOND_HAS + operation)
    with pytest.raises(ConfigError, match=r"secrets\.0.*it is the secret of providers\.bank\.accounts\.main too"):
        load(file, ENV | env)
    assert load(file, ENV).providers["bank"].webhook is not None


def test_a_secret_of_the_provider_belongs_to_nobody_among_several(tmp_path: Path) -> None:
    said = findings(tmp_path, WEBHOOK, 'secrets = [{env = "HOOK"}]\n', base=TWO)
    assert ("error", "providers.bank.webhook.secrets") in [(each.level, each.where) for each in said]


@pytest.mark.parametrize(
    ("parts", "where", "said"),
    [
        ((HAS_SECRETS,), "providers.bank.accounts.main.webhook", "nothing says how"),
        ((WEBHOOK.replace("key", "kee"), HAS_SECRETS), "providers.bank.webhook.kee", "no such setting"),
        ((WEBHOOK.replace("/data", "data"), HAS_SECRETS), "providers.bank.webhook.key", "not a JSON pointer"),
        ((WEBHOOK + 'scheme = "strip"\n', HAS_SECRETS), "providers.bank.webhook.scheme", "must be one of"),
        ((WEBHOOK + 'types = ["pay*ment"]\n', HAS_SECRETS), "providers.bank.webhook.types", "not a type of events"),
        ((WEBHOOK + 'secrets = ["whsec_abc"]\n',), "providers.bank.webhook.secrets.0", "never stands in idem.toml"),
        (("[webhooks]\nport = 70000\n",), "webhooks.port", "less than or equal to 65535"),
        (("[webhooks]\nmax_body = 0\n",), "webhooks.max_body", "greater than or equal to 1024"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, parts: tuple[str, ...], where: str, said: str) -> None:
    errors = [each for each in findings(tmp_path, *parts) if each.level == "error"]
    assert [each.where for each in errors] == [where]
    assert said in errors[0].what
    assert errors[0].do


def test_an_event_that_could_never_be_matched(tmp_path: Path) -> None:
    base = BASE.replace('object = { reference = "/id", status = "/status" }\n', "")
    said = findings(tmp_path, "[providers.bank.webhook]\n", HAS_SECRETS, base=base)
    assert ("error", "providers.bank.webhook.key") in [(each.level, each.where) for each in said]
    said = findings(tmp_path, "[providers.bank.webhook]\n", HAS_SECRETS)
    assert [(each.level, each.where) for each in said] == [("warning", "providers.bank.webhook.key")]


def test_a_rule_that_no_event_can_be_read_by(tmp_path: Path) -> None:
    base = BASE.replace(', when = { "/status" = "succeeded" }', "")
    said = findings(tmp_path, WEBHOOK, HAS_SECRETS, base=base)
    assert [(each.level, each.where) for each in said] == [("warning", "providers.bank.outcome.0.when")]


def test_events_are_a_way_to_settle(tmp_path: Path) -> None:
    """A provider that knows no keys and answers no questions needs nobody's standing order, if it sends events."""
    base = BASE.replace(
        'key = { carrier = "header", name = "idempotency-key", replay = "stored", retention = "24h" }\n', ""
    )
    assert "providers.bank.on_unsettleable" in [each.where for each in findings(tmp_path, base=base)]
    assert "providers.bank.on_unsettleable" not in [
        each.where for each in findings(tmp_path, WEBHOOK, HAS_SECRETS, base=base)
    ]


def test_the_environment_sets_the_endpoint(tmp_path: Path) -> None:
    found = load(written(tmp_path), ENV | {"IDEM_WEBHOOKS_PORT": "9000", "IDEM_WEBHOOKS_MAX_BODY": "4096"})
    assert (found.settings.webhooks.port, found.settings.webhooks.max_body) == (9000, 4096)


async def test_config_check_says_it(desk: Desk, tmp_path: Path) -> None:
    file = written(tmp_path, WEBHOOK, HAS_SECRETS)
    checked = run(["config", "check"], desk.environment | {"IDEM_CONFIG": str(file), "HOOK": "whsk_x", "NEXT": SECOND})
    assert checked.code != 0
    assert "providers.bank.accounts.main.webhook.secrets.0" in checked.out + checked.err
