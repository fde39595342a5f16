"""A user's mistake: one clear message, the documented exit code, never a traceback and never a secret."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import pytest
from fix_database import on
from fix_desk import Desk, Result, run
from fix_sql import query
from schema.databases import new_database

LOOKING = [("status",), ("dlq", "list"), ("intents", "list"), ("unknowns", "list"), ("db", "current"), ("db", "check")]
WRITING = [
    ("dlq", "discard", UUID(int=1), "--reason", "r", "--yes"),
    ("intents", "cancel", UUID(int=1), "--reason", "r", "--yes"),
    ("dlq", "redrive", "--provider", "keyed", "--reason", "r"),
]
DAEMONS = [("worker", "run"), ("sweeper", "run", "--once"), ("reconciler", "run"), ("reconcile", "--now")]

Order = tuple[object, ...]


def call(order: Order, environment: dict[str, str], **changes: str) -> Result:
    result = run([str(each) for each in order], environment | changes)
    assert "Traceback" not in result.err
    return result


@pytest.fixture
def empty(superuser_url: str) -> Iterator[str]:
    """A database without a schema."""
    with new_database(superuser_url) as url:
        yield url


@pytest.mark.parametrize("order", [*LOOKING, *WRITING, *DAEMONS, ("db", "upgrade")], ids=str)
def test_a_server_that_is_not_there(order: Order, variables: dict[str, str]) -> None:
    url = "postgresql://ada:hunter2@127.0.0.1:9/idem"
    # A daemon would wait for a while.
    order = (*order, "--wait", "0.1") if order[1:] == ("run",) else order
    result = call(order, variables, IDEM_DATABASE_URL=url)
    assert result.code == 1
    assert "cannot be reached" in result.err
    assert "hunter2" not in result.err + result.out


@pytest.mark.parametrize("order", [*LOOKING, *WRITING, *DAEMONS, ("db", "upgrade")], ids=str)
def test_a_database_that_is_not_there(order: Order, variables: dict[str, str], superuser_url: str) -> None:
    result = call(order, variables, IDEM_DATABASE_URL=on(superuser_url, "no_such_database"))
    assert result.code == 1
    assert "does not exist" in result.err and "IDEM_DATABASE_URL" in result.err


@pytest.mark.parametrize("order", [*LOOKING[:4], *WRITING, *DAEMONS], ids=str)
def test_a_database_without_the_schema(order: Order, variables: dict[str, str], empty: str) -> None:
    result = call(order, variables, IDEM_DATABASE_URL=empty)
    assert result.code == 1
    assert "Run `idem db upgrade`" in result.err


@pytest.mark.parametrize("order", [*LOOKING, *WRITING, *DAEMONS, ("db", "upgrade")], ids=str)
@pytest.mark.parametrize(
    "url", ["mysql://ada:hunter2@h/d", "postgresql://ada:hunter%zz2@h/d", "postgresql://ada:hunter2@h:x/d", "hunter2"]
)
def test_a_url_that_is_none(order: Order, variables: dict[str, str], url: str) -> None:
    result = call(order, variables, IDEM_DATABASE_URL=url)
    assert result.code == 2
    assert "IDEM_DATABASE_URL" in result.err
    assert "hunter" not in result.err + result.out


@pytest.mark.parametrize("order", [*WRITING, *DAEMONS], ids=str)
def test_a_configuration_that_is_wrong_or_missing(
    order: Order, environment: dict[str, str], configuration: Path, tmp_path: Path
) -> None:
    missing = call(order, environment, IDEM_CONFIG=str(tmp_path / "none.toml"))
    assert missing.code == 2
    assert "there is no such file" in missing.err
    configuration.write_text(configuration.read_text() + "\n[worker]\nleese = 3\n")
    wrong = call(order, environment)
    assert wrong.code == 2
    assert "lease" in wrong.err


@pytest.mark.parametrize("order", [*WRITING, *DAEMONS, ("db", "upgrade")], ids=str)
def test_the_database_of_another_environment(order: Order, environment: dict[str, str], configuration: Path) -> None:
    configuration.write_text(configuration.read_text().replace('"test"', '"production"'))
    result = call(order, environment)
    assert result.code in (1, 2)
    assert "it is the wrong database, or the wrong idem.toml" in result.err


def test_a_role_without_rights(environment: dict[str, str], db_url: str, superuser_url: str) -> None:
    role = f"idem_nobody_{urlsplit(db_url).path[1:]}"
    query(superuser_url, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        parts = urlsplit(db_url)
        netloc = f"{role}:x@{parts.netloc.rpartition('@')[2]}"
        result = call(("status",), environment, IDEM_DATABASE_URL=urlunsplit(parts._replace(netloc=netloc)))
        assert result.code == 1
        assert "lacks a right: permission denied for schema idem. Run `idem db grant" in result.err
    finally:
        query(superuser_url, f"DROP ROLE {role}")


@pytest.mark.parametrize("named", ["--config", "IDEM_CONFIG"])
@pytest.mark.parametrize("content", [None, b"\xff\x00", b"providers = ["], ids=["missing", "binary", "not_toml"])
def test_a_named_file_is_read_though_a_variable_names_the_database(
    environment: dict[str, str], db_url: str, tmp_path: Path, named: str, content: bytes | None
) -> None:
    file, variables = tmp_path / "named.toml", environment | {"IDEM_DATABASE_URL": db_url}
    if content is not None:
        file.write_bytes(content)
    given, more = (("-c", str(file)), {}) if named == "--config" else ((), {named: str(file)})
    result = call(("status", *given), variables, **more)
    assert result.code == 2
    assert "named.toml: " in result.err
    file.write_text("[worker]\nleese = 3\n")
    assert call(("status", *given), variables, **more).code == 0


def test_a_revision_that_this_program_does_not_know(environment: dict[str, str], db_url: str) -> None:
    query(db_url, "UPDATE idem.alembic_version SET version_num = '0099'")
    assert call(("status", "--json"), environment).data["schema"]["revision"] == "0099"
    assert "0099, but this program needs 0" in call(("status",), environment).out
    upgrade = call(("db", "upgrade"), environment)
    assert upgrade.code == 1
    assert "does not know (0099; this one needs 0" in upgrade.err and "Can't locate" not in upgrade.err


def test_messages_have_no_context_and_name_what_to_do(
    environment: dict[str, str], superuser_url: str, tmp_path: Path
) -> None:
    away = {"IDEM_DATABASE_URL": on(superuser_url, "no_such_database")}
    for order, more, code, words, never in (
        (("db", "grant", "no_such_role", "--as", "daemon"), {}, 1, "does not exist: create it first", "CONTEXT"),
        (("doctor",), away, 1, "create it, then run `idem db upgrade`", "pg_hba"),
        (("bank", "run", "--settings", str(tmp_path / "none.json")), {}, 2, "Name a JSON file", "Errno"),
    ):
        result = call(order, environment, **more)
        assert result.code == code
        said = " ".join((result.out + result.err).replace("│", " ").split())
        assert words in said and never not in said


def test_upgrade_current_check_and_sql(variables: dict[str, str], empty: str) -> None:
    environment = variables | {"IDEM_DATABASE_URL": empty}
    assert call(("db", "check", "--json"), environment).code == 3
    done = call(("db", "upgrade", "--json"), environment)
    assert done.data["before"] is None and done.data["environment"] == "test"
    assert "environment test" in done.err
    again = call(("db", "upgrade"), environment)
    assert "is up to date" in again.out
    assert call(("db", "check", "--json"), environment).data["up_to_date"] is True
    assert call(("db", "current", "--json"), environment).data["environment"] == "test"
    sql = call(("db", "sql"), {})
    assert sql.out.startswith("SET search_path = pg_catalog, pg_temp;\nCREATE SCHEMA IF NOT EXISTS idem;")


def test_an_upgrade_needs_no_providers_credentials(variables: dict[str, str], empty: str) -> None:
    del variables["BANK_TOKEN"]
    assert call(("db", "upgrade"), variables, IDEM_DATABASE_URL=empty).code == 0


@pytest.mark.parametrize("file", [True, False])
def test_a_new_installation_must_be_named(
    variables: dict[str, str],
    empty: str,
    configuration: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: bool,
) -> None:
    configuration.write_text(configuration.read_text().replace('environment = "test"', ""))
    if not file:
        del variables["IDEM_CONFIG"]
        monkeypatch.chdir(tmp_path / "..")
    environment = variables | {"IDEM_DATABASE_URL": empty}
    refused = call(("db", "upgrade"), environment)
    assert refused.code == 2
    assert "IDEM_ENVIRONMENT" in refused.err and "idem.toml" in refused.err
    assert call(("db", "current", "--json"), environment).data["revision"] is None
    assert call(("db", "upgrade"), environment, IDEM_ENVIRONMENT="Prod!").code == 2
    assert call(("db", "upgrade"), environment, IDEM_ENVIRONMENT="development").code == 0
    # An installation that has its name is brought up to date as before.
    assert call(("db", "upgrade"), environment).code == 0


def test_an_upgrade_takes_the_retention_from_the_environment_before_the_file(
    variables: dict[str, str], empty: str, configuration: Path
) -> None:
    configuration.write_text(configuration.read_text() + "\n[sweeper]\nevidence_retention = '500d'\n")
    kept = "SELECT extract(epoch FROM evidence_retention)::int / 86400 FROM idem.installation"
    for changes, days in (({}, 500), ({"IDEM_SWEEPER_EVIDENCE_RETENTION": "600d"}, 600)):
        assert call(("db", "upgrade"), variables, IDEM_DATABASE_URL=empty, **changes).code == 0
        assert query(empty, kept)[0] == (days,)
    wrong = call(("db", "upgrade"), variables, IDEM_DATABASE_URL=empty, IDEM_SWEEPER_EVIDENCE_RETENTION="1s")
    assert wrong.code == 2


def test_who_only_looks_needs_no_credentials(environment: dict[str, str], configuration: Path) -> None:
    url = urlsplit(environment.pop("IDEM_DATABASE_URL"))
    host = url._replace(netloc=url.netloc.replace(f":{url.password}@", "@")) if url.password else url
    configuration.write_text(configuration.read_text() + f"\n[database]\nurl = '{urlunsplit(host)}'\n")
    environment.pop("BANK_TOKEN", None)
    if url.password:
        environment["PGPASSWORD"] = url.password
    for order in LOOKING:
        assert call(order, environment).code == 0, order


WRONG_USAGE: list[Order] = [
    ("recover", "--reason", "r"),
    ("recover", "--reason", "r", "--lost", "--lossless"),
    ("bank", "run", "--account", "x"),
    ("bank", "run", "--fault-rate", "3"),
    ("bank", "run", "--account", "a:t", "--account", "a:u"),
]


@pytest.mark.parametrize("order", WRONG_USAGE, ids=str)
def test_wrong_usage_ends_with_2(order: Order, environment: dict[str, str]) -> None:
    assert call(order, environment).code == 2


@pytest.mark.parametrize(
    "order",
    [("dlq", "list", "--account"), ("intents", "list", "--tenant"), ("pause", "keyed", "--reason"), ("token", "list")],
    ids=str,
)
def test_an_argument_that_no_database_could_hold(order: Order, environment: dict[str, str]) -> None:
    result = call((*order, "caf\udce9"), environment)
    assert (result.code, result.err) == (2, "idem: the argument 'caf\\udce9' is not UTF-8 text: write it in UTF-8\n")


def test_settings_of_the_bank_that_are_none(environment: dict[str, str], tmp_path: Path) -> None:
    settings = tmp_path / "bank.json"
    for text in ("{", "[]", '{"sead": 1}'):
        settings.write_text(text)
        wrong = call(("bank", "run", "--settings", settings), environment)
        assert wrong.code == 2
        assert "bank.json" in wrong.err


def test_a_metrics_port_that_is_taken(environment: dict[str, str]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = call(("worker", "run", "--metrics-port", taken.getsockname()[1]), environment)
    assert result.code == 2
    assert "another process is listening there. Choose another port" in result.err


async def test_a_fault_of_our_own_keeps_its_traceback(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What explains every error away would hide faults: only known mistakes become a message."""
    from idem.outbox.operator import listing

    async def broken(*_: object, **__: object) -> None:
        raise AssertionError("a fault")

    monkeypatch.setattr(listing, "dead_letters", broken)
    with pytest.raises(AssertionError, match="a fault"):
        await desk.cli("dlq", "list")


@pytest.mark.parametrize(
    "order",
    [("db", "upgrade", "--lock-timeout", "inf"), ("db", "upgrade", "--lock-timeout", "1e300"),
     ("demo", "--factor", "1e308"), ("demo", "--factor", "inf"), ("status", "--watch", "--every", "1e300")],
    ids=str,
)  # fmt: skip
def test_a_number_that_nothing_can_hold_is_refused(order: Order, variables: dict[str, str]) -> None:
    result = call(order, variables)
    assert result.code == 2
    assert order[-2] in result.err
