"""How a command gets its configuration and its connection to the database. A command that writes first prints where."""

from __future__ import annotations

import math
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idem.cli.base.application import VARIABLE, application
from idem.cli.base.output import say
from idem.outbox.database.installation import NOT_INSTALLED, other_environment
from idem.outbox.values.errors import ConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import AsyncConnection

    from idem.application.app import Idem
    from idem.outbox.config import Configuration
    from idem.outbox.config.http_settings import ApiSettings, EndpointSettings
    from idem.outbox.database.address import Address
    from idem.outbox.database.pool import Hook, Timeouts
    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.providers.contract_checks import Finding

URL = "IDEM_DATABASE_URL"


def configuration(config: Path | None) -> Configuration:
    """The whole configuration, with the operations of the configured application. Raises ConfigError."""
    from idem.outbox.config import load

    app = application(config)
    return load(config) if app is None else app.configuration()


def accepting(config: Path | None) -> Configuration | Idem:
    """What idem accepts, from the file and the application, without any provider's credentials. Raises ConfigError."""
    from idem.outbox.config import load

    return application(config) or load(config, accepting=True)


def is_written(config: Path | None) -> bool:
    """Whether there is a file to read. An application needs none, but a file that was named must exist."""
    from idem.outbox.config import source

    named = config is not None or bool(os.environ.get(source.FILE_VARIABLE))
    return named or source.find(None, os.environ).exists()


def findings(config: Path | None) -> list[Finding]:
    """Every error and warning about the file and about the operations in the application's code."""
    from idem.outbox.config import explain
    from idem.outbox.providers.contract_checks import Finding

    found = explain(config) if is_written(config) or not os.environ.get(VARIABLE) else []
    if any(finding.level == "error" for finding in found):
        return found  # the application would only repeat them
    try:
        named = application(config)
        if named is None:
            return found
        operations = named.configuration().operations
    except ConfigError as error:
        said = (problem.partition(": ") for problem in error.problems)
        return [*(Finding("error", where, what, "Correct it in the code") for where, _, what in said), *found]
    return [finding for finding in found if not (operations and finding.where == "operations")]


def address(config: Path | None, *, must_read: bool = True) -> Address:
    """The database's address, from IDEM_DATABASE_URL or [database] alone.

    A command that only reads needs no provider's secrets, and works with mistakes in the file; but a file that is named
    must be TOML (`must_read`), so that a typing error in its name is noticed. Raises ConfigError, which never quotes
    the URL.
    """
    from idem.outbox.config import database_address, source
    from idem.outbox.database.address import Address

    try:
        if url := os.environ.get(URL):
            if must_read and (config is not None or os.environ.get(source.FILE_VARIABLE)):
                source.read(source.find(config, os.environ))
            found = Address(url)
        else:
            found = database_address(config)
    except ValueError as error:
        raise ConfigError(f"{URL}: {error}") from None
    named(found)
    return found


def named(address: Address) -> str:
    """A database's name for messages, without the password. Raises ConfigError, which never quotes the URL."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(address.url)
        ports = str(parts.get("port", 5432)).split(",")
        if not all(port.isdigit() for port in ports):
            raise ProgrammingError
    except ProgrammingError as error:
        # In libpq's message only a parameter's name cannot be part of a secret.
        unknown = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        if unknown:
            raise ConfigError(
                f"{address.source}: PostgreSQL has no connection parameter {unknown[1]}. Remove it from the URL"
            ) from None
        raise ConfigError(
            f"{address.source}: not a valid URL. Write postgresql://user:password@host:5432/name, with special "
            "characters of the password percent-encoded"
        ) from None
    hosts = str(parts.get("host", "")).split(",")
    at = ", ".join(f"{host}:{ports[n] if len(ports) > 1 else ports[0]}" for n, host in enumerate(hosts))
    return f"{parts.get('dbname', '')} on {at}, as {parts.get('user', '')}"


def environment(config: Path | None) -> tuple[str, bool]:
    """The environment's name, and whether it is set, from a file whose secrets may be missing.

    A migration job has no secrets. Raises ConfigError for an invalid name.
    """
    from idem.outbox.config.settings import InstallationSettings

    said = {name: value for name, value in _merged(config).items() if name == "environment"}
    try:
        return InstallationSettings.model_validate(said).environment, bool(said)
    except ValueError:
        raise ConfigError(
            "environment: invalid name. Use a-z, 0-9, dashes and underscores, up to 63 characters, e.g. production"
        ) from None


def evidence_retention(config: Path | None) -> float | None:
    """How long idem keeps evidence, in seconds, from the same file; None if it is not set."""
    from idem.outbox.config.settings import SweeperSettings

    sweeper = _merged(config).get("sweeper", {})
    if not isinstance(sweeper, dict) or "evidence_retention" not in sweeper:
        return None
    try:
        return SweeperSettings(evidence_retention=sweeper["evidence_retention"]).evidence_retention
    except ValueError:
        raise ConfigError("sweeper.evidence_retention: it must be a duration of a day or more, e.g. 400d") from None


def _merged(config: Path | None) -> dict[str, Any]:
    from idem.outbox.config import source

    path = source.find(config, os.environ)
    raw = {} if config is None and not path.exists() else source.read(path)[0]
    return source.overlay(raw, os.environ)[0]


def catalogue(found: Configuration) -> Catalogue:
    """The providers and operations of a configuration."""
    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.domain.contract import LOCAL
    from idem.outbox.providers.local import LocalProvider

    return Catalogue(found.settings.environment, {LOCAL: LocalProvider(), **found.providers}, found.operations)


def readable_catalogue(config: Path | None) -> Catalogue | None:
    """The catalogue for a command that only reads: None, with a note, if the configuration cannot be used."""
    try:
        return catalogue(configuration(config))
    except ConfigError as error:
        say("note: the configuration cannot be used here, so idem does not know what an operation allows:")
        for problem in error.problems:
            say(f"  {problem}")
        return None


def timeouts(found: Configuration, at_most: float = math.inf) -> Timeouts:
    """The timeouts of a configuration's sessions, in seconds, none of which waits longer than `at_most`."""
    from idem.outbox.database.pool import Timeouts

    database = found.settings.database
    return Timeouts(
        min(at_most, database.statement_timeout), min(at_most, database.lock_timeout),
        database.idle_in_transaction_timeout, min(at_most, database.connect_timeout),
    )  # fmt: skip


def pool(found: Configuration, served: ApiSettings | EndpointSettings) -> tuple[int, Timeouts]:
    """Connections and timeouts of a process that serves HTTP. It answers 503 sooner than a daemon gives up."""
    return served.pool, timeouts(found, served.timeout)


@asynccontextmanager
async def connected(config: Path | None) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection for this command, outside the workers' pool."""
    from idem.outbox.database import session

    connection = await session.connect(address(config), name="idem command")
    async with connection:
        await unhindered(connection)
        # A listing's filters differ at each call, so PostgreSQL plans each call for its own filters.
        await connection.execute("SET plan_cache_mode = auto")
        yield connection


async def unhindered(connection: AsyncConnection[Any]) -> None:
    """Raises ConfigError if a setting of the database or the role hides rows or makes idem unusable."""
    from idem.outbox.database import preconditions

    if wrong := await preconditions.read(connection):
        raise ConfigError(*map(str, wrong))


AGO = "SELECT statement_timestamp() - make_interval(secs => %(ago)s)"


async def time_of(connection: AsyncConnection[Any], moment: datetime | float | None) -> datetime | None:
    """A time from `options.moment`. A number means seconds ago by the database's clock, not this machine's."""
    if not isinstance(moment, float):
        return moment
    found = await (await connection.execute(AGO, {"ago": moment})).fetchone()
    assert found is not None
    at: datetime = found[0]
    return at


INSTALLATION = "SELECT i.environment, current_database()::text, current_user::text FROM idem.installation i"


@asynccontextmanager
async def writing(config: Path | None, expected: str) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection for a command that writes: it prints where, and refuses an environment other than `expected`."""
    async with connected(config) as connection:
        await announce(connection, expected)
        yield connection


@asynccontextmanager
async def deciding(config: Path | None) -> AsyncIterator[tuple[AsyncConnection[Any], Catalogue]]:
    """A connection for a decision about intents, with the configuration and after a daemon's checks at its start.

    After a restore a row that looks unsent may have been sent; no decision is possible before idem notices the restore.
    """
    from idem.outbox.observe import telemetry

    telemetry.set_up(json=False, level="warning")
    found = configuration(config)
    async with writing(config, found.settings.environment) as connection:
        await guard(found)(connection)
        yield connection, catalogue(found)


def guard(found: Configuration) -> Hook:
    """The check of a session that writes: whether this database is still the one it was (Recovery)."""
    from idem.outbox.recovery.guard import Guard

    return Guard(catalogue(found), found.settings.database.durability)


async def announce(connection: AsyncConnection[Any], expected: str) -> None:
    """Print where this will write. Raises ConfigError if the database belongs to another environment."""
    found = await (await connection.execute(INSTALLATION)).fetchone()
    if found is None:
        raise ConfigError(NOT_INSTALLED)
    name, database, role = found
    say(f"environment {name}, database {database} on {connection.info.host}:{connection.info.port}, as {role}")
    if wrong := other_environment(name, expected):
        raise ConfigError(wrong)


def listen_at(served: ApiSettings | EndpointSettings, host: str | None, port: int | None) -> tuple[str, int]:
    """The host and port to listen on: those given, else the configured ones."""
    return served.host if host is None else host, served.port if port is None else port


def in_url(address: str) -> str:
    """An address as written in a URL: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def listening(at: str, port: int) -> None:
    """Print where a process serves HTTP."""
    say(f"listening on http://{in_url(at)}:{port}")
