"""Settings and secrets from the environment and from files."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from idem import Idem
from idem.errors import ConfigError
from idem.outbox.config import database_address, explain, load
from idem.outbox.config.operation_settings import OperationSettings
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.settings import InstallationSettings
from idem.outbox.config.source import variables
from idem.outbox.values import settings_base
from idem.outbox.values.settings_base import Section

PROVIDER = """
[providers.bank]
key = { carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }
errors = { shape = "/error/code" }
outcome = [{ says = "final" }]
verified = "TODAY"
accounts.main = { origin = "https://bank.example", authorization = %s }
[operations.pay]
provider = "bank"
path = "/payments"
params = { type = "object" }
""".replace("TODAY", str(date.today()))


@pytest.fixture
def write(tmp_path: Path) -> Path:
    path = tmp_path / "idem.toml"
    path.write_text(PROVIDER % '{ env = "BANK_TOKEN" }')
    return path


def told(path: Path, env: dict[str, str]) -> list[tuple[str, str, str]]:
    return [(finding.level, finding.where, finding.what) for finding in explain(path, env)]


AUTHORIZATION = "providers.bank.accounts.main.authorization"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "the environment variable BANK_TOKEN is not set"),
        ("", "the secret is empty"),
        (" ", "the secret is empty"),
        ("\n", "the secret is empty"),
        ("tökén", "the secret is not ASCII"),
        ("to\nken", "the credential has characters that no header can carry"),
        ("to\x00ken", "the credential has characters that no header can carry"),
        (" token", "the credential has characters that no header can carry"),
    ],
)
def test_a_credential_that_cannot_be_sent_names_its_setting_and_not_itself(
    write: Path, value: str | None, what: str
) -> None:
    env = {} if value is None else {"BANK_TOKEN": value}
    assert ("error", AUTHORIZATION, what) in told(write, env)
    with pytest.raises(ConfigError, match=AUTHORIZATION) as raised:
        load(write, env)
    assert "ken" not in str(raised.value).replace("BANK_TOKEN", "")


def test_a_trailing_newline_is_left_out_with_a_warning(write: Path) -> None:
    configuration = load(write, {"BANK_TOKEN": "token\r\n"})
    assert configuration.providers["bank"].accounts["main"].credentials == {"authorization": "token"}
    (warning,) = configuration.warnings
    assert (warning.level, warning.where) == ("warning", AUTHORIZATION)
    assert "newline" in warning.what


def test_a_secret_in_a_file_beside_the_configuration(write: Path) -> None:
    write.write_text(PROVIDER % '{ file = "secrets/bank", prefix = "Bearer " }')
    secret = write.parent / "secrets" / "bank"
    assert ("error", AUTHORIZATION, "the file secrets/bank cannot be read: No such file or directory") in told(
        write, {}
    )
    secret.parent.mkdir()
    secret.write_text("token\n")
    assert load(write, {}).providers["bank"].accounts["main"].credentials == {"authorization": "Bearer token"}
    secret.write_bytes(b"\xff\xfe")
    assert ("error", AUTHORIZATION, "the file secrets/bank cannot be read: it is not text") in told(write, {})
    secret.write_bytes(b"x" * 100_000)
    assert ("error", AUTHORIZATION, "the file secrets/bank is too large for a secret") in told(write, {})


def test_the_environment_wins_over_the_file(write: Path) -> None:
    write.write_text("environment = 'a'\n[worker]\nlease = '30s'\n" + PROVIDER % '{ env = "BANK_TOKEN" }')
    env = {"BANK_TOKEN": "t", "IDEM_WORKER_LEASE": "2m", "IDEM_ENVIRONMENT": "b", "IDEM_WORKER_SLOTS": ""}
    settings = load(write, env).settings
    assert (settings.worker.lease, settings.environment, settings.worker.slots) == (120.0, "b", 16)


def test_a_mistake_in_a_variable_names_the_variable(write: Path) -> None:
    (finding,) = explain(write, {"BANK_TOKEN": "t", "IDEM_WORKER_SLOTS": "many"})
    assert (finding.level, finding.where, finding.line) == ("error", "IDEM_WORKER_SLOTS", None)


def test_the_database_url_may_hold_a_password_in_the_environment_only(write: Path) -> None:
    env = {"BANK_TOKEN": "t", "IDEM_DATABASE_URL": "postgresql://a:s3cret@h/d"}
    configuration = load(write, env)
    assert configuration.database_url == env["IDEM_DATABASE_URL"]
    assert "s3cret" not in repr(configuration)
    findings = explain(write, {**env, "IDEM_DATABASE_URL": "mysql://a:s3cret@h/d"})
    assert [finding.where for finding in findings] == ["IDEM_DATABASE_URL"]
    assert "s3cret" not in str(findings[0])


def test_an_unknown_variable_is_a_warning_with_the_nearest(write: Path) -> None:
    env = {"BANK_TOKEN": "t", "IDEM_WORKER_LEESE": "1m", "IDEM_PORT_5432_TCP_ADDR": "x", "IDEM_API_SERVICE_HOST": "y"}
    (finding,) = load(write, env).warnings
    assert (finding.level, finding.where, finding.do) == (
        "warning",
        "IDEM_WORKER_LEESE",
        "Did you mean IDEM_WORKER_LEASE?",
    )
    write.write_text(PROVIDER % '{ env = "IDEM_BANK_TOKEN" }')
    assert load(write, {"IDEM_BANK_TOKEN": "t"}).warnings == ()


def links(service: str, port: int) -> dict[str, str]:
    """What Kubernetes sets in each pod for a Service, and Docker for a link."""
    address = f"tcp://10.0.0.9:{port}"
    return {
        f"{service}_SERVICE_HOST": "10.0.0.9", f"{service}_SERVICE_PORT": str(port),
        f"{service}_SERVICE_PORT_HTTP": str(port), f"{service}_PORT": address, f"{service}_PORT_{port}_TCP": address,
        f"{service}_PORT_{port}_TCP_PROTO": "tcp", f"{service}_PORT_{port}_TCP_PORT": str(port),
        f"{service}_PORT_{port}_TCP_ADDR": "10.0.0.9", f"{service}_PORT_{port}_SCTP": f"sctp://10.0.0.9:{port}",
    }  # fmt: skip


def test_ib_184_what_an_orchestrator_sets_is_no_setting(write: Path) -> None:
    """For every Service whose name, with the ending of such a variable, may be a setting's; in an application too."""
    services = {"IDEM", "IDEM_API", "IDEM_IDEM"} | {
        variable.rpartition("_")[0] for variable in variables() if variable.count("_") > 1
    }
    env = {"BANK_TOKEN": "t"} | {name: value for each in services for name, value in links(each, 80).items()}
    assert "IDEM_API_PORT" in env
    found = load(write, env)
    assert (found.warnings, found.settings) == ((), load(write, {"BANK_TOKEN": "t"}).settings)
    assert Idem(write, env=env).configuration().settings == found.settings
    assert load(write, env | {"IDEM_API_PORT": "8181"}).settings.api.port == 8181


def test_variables_of_our_own_that_are_no_settings_are_known(write: Path) -> None:
    ours = ("IDEM_CONFIG", "IDEM_OPERATOR", "IDEM_PG_BIN", "IDEM_TEST_DATABASE_URL", "IDEM_TEST_HOME", "IDEM_KILL_RUNS")
    assert load(write, {"BANK_TOKEN": "t", **dict.fromkeys(ours, "x")}).warnings == ()
    (finding,) = load(write, {"BANK_TOKEN": "t", "IDEM_OPERATER": "ada"}).warnings
    assert finding.do == "Did you mean IDEM_OPERATOR?"


def test_the_database_alone_needs_nothing_of_the_rest(write: Path) -> None:
    database = '[database]\nurl = "postgresql://u@h/d"\n'
    write.write_text(database + PROVIDER % '{ env = "BANK_TOKEN" }')
    assert database_address(write, {}).url == "postgresql://u@h/d"
    assert database_address(write, {"IDEM_DATABASE_URL": "postgresql://u:p@h/e"}).url == "postgresql://u:p@h/e"
    write.write_text(database + "[worker]\nleese = 1\n[operations.pay]\n")
    assert database_address(write, {}).url == "postgresql://u@h/d"
    write.write_text("[database]\nurl_from = { env = 'NO_URL' }\n")
    with pytest.raises(ConfigError, match="NO_URL is not set"):
        database_address(write, {})
    write.write_text("")
    with pytest.raises(ConfigError, match="nothing names a database"):
        database_address(write, {})


def test_every_section_has_its_variables() -> None:
    known = variables()
    assert known["IDEM_DATABASE_URL"] == ("database", "url")
    assert {
        "IDEM_ENVIRONMENT",
        "IDEM_WORKER_POLL",
        "IDEM_SWEEPER_TOMBSTONE_TTL",
        "IDEM_RECONCILER_SLOT_SHARE",
    } <= set(known)


def models(model: type[Section]) -> Iterator[type[Section]]:
    yield model
    for field in model.model_fields.values():
        waiting = [field.annotation]
        while waiting:
            annotation = waiting.pop()
            waiting.extend(get_args(annotation))
            if isinstance(annotation, type) and issubclass(annotation, Section):
                yield from models(annotation)


@pytest.mark.parametrize("root", [InstallationSettings, ProviderSettings, OperationSettings])
def test_every_setting_says_what_it_is_and_its_default(root: type[Section]) -> None:
    for model in models(root):
        assert model.__doc__ and model.model_config["extra"] == "forbid"
        for name, field in model.described().items():
            about = field.description or ""
            assert about.endswith("."), f"{model.__name__}.{name}"
            nested = isinstance(field.annotation, type) and issubclass(field.annotation, Section)
            assert field.is_required() or nested or "efault" in about or name in LISTS, (
                f"{model.__name__}.{name}: {about}"
            )


def test_a_mistake_is_explained_where_no_source_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(_: object) -> str:
        raise OSError("could not get source code")

    settings_base._texts.cache_clear()
    monkeypatch.setattr("inspect.getsource", compiled)
    (tmp_path / "idem.toml").write_text(PROVIDER % '{ env = "T" }' + "polls = 1\n")
    try:
        found = [each for each in explain(tmp_path / "idem.toml", {"T": "x"}) if "polls" in each.where]
    finally:
        settings_base._texts.cache_clear()
    assert [each.what for each in found] == ["there is no such setting"]


LISTS = {"env", "file", "name", "outcome", "accounts", "verified", "body", "when", "headers"}
"""Settings whose default is nothing at all."""
