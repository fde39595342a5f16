"""How a command comes to its configuration and its database; who writes says first where."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idem.cli.application import VARIABLE, application
from idem.cli.output import say
from idem.outbox.database.installation import NOT_INSTALLED, other_environment
from idem.outbox.values.errors import ConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import AsyncConnection

    from idem.application.app import Idem
    from idem.outbox.config import Configuration
    from idem.outbox.config.api_settings import ApiSettings
    from idem.outbox.config.endpoint_settings import EndpointSettings
    from idem.outbox.database.address import Address
    from idem.outbox.database.pool import Hook, Timeouts
    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.providers.contract_checks import Finding

URL = "IDEM_DATABASE_URL"


def configuration(config: Path | None) -> Configuration:
    """The whole configuration, with the operations of the application that is named. Raises ConfigError."""
    from idem.outbox.config import load

    app = application(config)
    return load(config) if app is None else app.configuration()


def accepting(config: Path | None) -> Configuration | Idem:
    """What is accepted, by the file and the application, without any provider's credentials. Raises ConfigError."""
    from idem.outbox.config import load

    return application(config) or load(config, accepting=True)


def is_written(config: Path | None) -> bool:
    """Whether there is a file to read; an application can do without one. One that was named must be there."""
    from idem.outbox.config import source

    named = config is not None or bool(os.environ.get(source.FILE_VARIABLE))
    return named or source.find(None, os.environ).exists()


def findings(config: Path | None) -> list[Finding]:
    """Every mistake and doubt in the file, and in what the named application's code says of operations."""
    from idem.outbox.config import explain
    from idem.outbox.providers.contract_checks import Finding

    found = explain(config) if is_written(config) or not os.environ.get(VARIABLE) else []
    if any(finding.level == "error" for finding in found):
        return found  # the code would only say them again
    try:
        named = application(config)
        if named is None:
            return found
        operations = named.configuration().operations
    except ConfigError as error:
        said = (problem.partition(": ") for problem in error.problems)
        return [*(Finding("error", where, what, "Correct it in the code") for where, _, what in said), *found]
    return [finding for finding in found if not (operations and finding.where == "operations")]


def address(config: Path | None) -> Address:
    """Where the database is, by IDEM_DATABASE_URL or [database] alone: who only looks needs no provider's secrets.

    Raises ConfigError, which never quotes the URL.
    """
    from idem.outbox.config import database_address
    from idem.outbox.database.address import Address

    try:
        found = Address(os.environ[URL]) if os.environ.get(URL) else database_address(config)
    except ValueError as error:
        raise ConfigError(f"{URL}: {error}") from None
    named(found)
    return found


def named(address: Address) -> str:
    """A database for people: without the password. Raises ConfigError, which never quotes the URL."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(address.url)
        ports = str(parts.get("port", 5432)).split(",")
        if not all(port.isdigit() for port in ports):
            raise ProgrammingError
    except ProgrammingError as error:
        # Of what libpq says only the name of a parameter is no part of a secret.
        unknown = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        if unknown:
            raise ConfigError(
                f"{address.source}: PostgreSQL knows no connection parameter {unknown[1]}: take it out of the URL"
            ) from None
        raise ConfigError(
            f"{address.source}: it cannot be read: write postgresql://user:password@host:5432/name, with special "
            "characters of the password percent-encoded"
        ) from None
    hosts = str(parts.get("host", "")).split(",")
    at = ", ".join(f"{host}:{ports[n] if len(ports) > 1 else ports[0]}" for n, host in enumerate(hosts))
    return f"{parts.get('dbname', '')} on {at}, as {parts.get('user', '')}"


def environment(config: Path | None) -> tuple[str, bool]:
    """The environment's name, and whether somebody said it, from a file whose secrets need not be there.

    A migration job has none of them. Raises ConfigError for a name that cannot be one.
    """
    from idem.outbox.config.settings import InstallationSettings

    said = {name: value for name, value in _merged(config).items() if name == "environment"}
    try:
        return InstallationSettings.model_validate(said).environment, bool(said)
    except ValueError:
        raise ConfigError(
            "environment: it is no usable name: write a-z, 0-9, dashes and underscores, up to 63, as production"
        ) from None


def evidence_retention(config: Path | None) -> float | None:
    """How long evidence is kept, in seconds, from the same; None where nobody says it."""
    from idem.outbox.config.settings import SweeperSettings

    sweeper = _merged(config).get("sweeper", {})
    if not isinstance(sweeper, dict) or "evidence_retention" not in sweeper:
        return None
    try:
        return SweeperSettings(evidence_retention=sweeper["evidence_retention"]).evidence_retention
    except ValueError:
        raise ConfigError("sweeper.evidence_retention: it is no duration of a day or more: write 400d") from None


def _merged(config: Path | None) -> dict[str, Any]:
    from idem.outbox.config import source

    path = source.find(config, os.environ)
    raw = {} if config is None and not path.exists() else source.read(path)[0]
    return source.overlay(raw, os.environ)[0]


def catalogue(found: Configuration) -> Catalogue:
    """What the daemons know, out of a configuration."""
    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.domain.contract import LOCAL
    from idem.outbox.providers.local import Nobody

    return Catalogue(found.settings.environment, {LOCAL: Nobody(), **found.providers}, found.operations)


def catalogue_to_look(config: Path | None) -> Catalogue | None:
    """The same for a command that only looks: None, with a note, where the configuration cannot be used."""
    try:
        return catalogue(configuration(config))
    except ConfigError as error:
        say("note: the configuration cannot be used here, so what an operation allows is not known:")
        for problem in error.problems:
            say(f"  {problem}")
        return None


def timeouts(found: Configuration) -> Timeouts:
    """The timeouts of a configuration's sessions."""
    from idem.outbox.database.pool import Timeouts

    database = found.settings.database
    return Timeouts(
        database.statement_timeout, database.lock_timeout, database.idle_in_transaction_timeout,
        database.connect_timeout,
    )  # fmt: skip


def pool(found: Configuration, served: ApiSettings | EndpointSettings) -> tuple[int, Timeouts]:
    """Connections and timeouts of a process that serves HTTP: its clients hear 503 sooner than a daemon gives up."""
    from idem.outbox.database.pool import Timeouts

    database = found.settings.database
    return served.pool, Timeouts(
        min(served.timeout, database.statement_timeout), min(served.timeout, database.lock_timeout),
        database.idle_in_transaction_timeout, min(served.timeout, database.connect_timeout),
    )  # fmt: skip


@asynccontextmanager
async def connected(config: Path | None) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection of this command's own, never one of the workers' pool."""
    from idem.outbox.database import session

    connection = await session.connect(address(config), name="idem command")
    async with connection:
        await unhindered(connection)
        # A listing's filters are different at each call: planned for the ones that are given, not once for all.
        await connection.execute("SET plan_cache_mode = auto")
        yield connection


async def unhindered(connection: AsyncConnection[Any]) -> None:
    """Raises ConfigError where a setting of the database or the role hides rows, or lets nothing of idem work."""
    from idem.outbox.database import preconditions

    if wrong := await preconditions.read(connection):
        raise ConfigError(*map(str, wrong))


AGO = "SELECT statement_timestamp() - make_interval(secs => %(ago)s)"


async def time_of(connection: AsyncConnection[Any], moment: datetime | float | None) -> datetime | None:
    """The time that `options.moment` has read: so many seconds ago by the database's clock, never by this machine's."""
    if not isinstance(moment, float):
        return moment
    found = await (await connection.execute(AGO, {"ago": moment})).fetchone()
    assert found is not None
    at: datetime = found[0]
    return at


async def times(
    connection: AsyncConnection[Any], since: datetime | float | None, until: datetime | float | None
) -> dict[str, Any]:
    """The two filters of a list, as times."""
    return {"since": await time_of(connection, since), "until": await time_of(connection, until)}


INSTALLATION = "SELECT i.environment, current_database()::text, current_user::text FROM idem.installation i"


@asynccontextmanager
async def writing(config: Path | None, expected: str) -> AsyncIterator[AsyncConnection[Any]]:
    """The same for a command that writes: it says where, and refuses another environment than the `expected`."""
    async with connected(config) as connection:
        await announce(connection, expected)
        yield connection


@asynccontextmanager
async def deciding(config: Path | None, found: Configuration) -> AsyncIterator[AsyncConnection[Any]]:
    """The same for a decision about intents: the session meets the database as a daemon does at its start.

    After a restore, what looks at rest may have been sent: nobody decides about it before that is noticed.
    """
    from idem.outbox.observe import telemetry

    telemetry.set_up(json=False, level="warning")
    async with writing(config, found.settings.environment) as connection:
        await guard(found)(connection)
        yield connection


def guard(found: Configuration) -> Hook:
    """What a session that writes checks at its start: whether this database is still the one it was (Recovery)."""
    from idem.outbox.recovery.guard import Guard

    return Guard(catalogue(found), found.settings.database.durability)


async def announce(connection: AsyncConnection[Any], expected: str) -> None:
    """Say where this will write. Raises ConfigError where the database belongs to another environment."""
    found = await (await connection.execute(INSTALLATION)).fetchone()
    if found is None:
        raise ConfigError(NOT_INSTALLED)
    name, database, role = found
    say(f"environment {name}, database {database} on {connection.info.host}:{connection.info.port}, as {role}")
    if wrong := other_environment(name, expected):
        raise ConfigError(wrong)


def in_url(address: str) -> str:
    """An address as it stands in a URL: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def listening(at: str, port: int) -> None:
    """Say where a process serves HTTP."""
    say(f"listening on http://{in_url(at)}:{port}")
