"""One examination: each check runs alone, with a time limit, in its own read-only transaction.

A check that cannot run is a finding. Settings are local to each transaction, because a pooler would pass a session's
settings on to another client.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.cli.base.time_limit import statement_timeout
from idem.cli.doctor.findings import CheckResult, Findings, error, granting, monitor
from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.database import session
from idem.outbox.database.address import Address

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.domain.catalogue import Catalogue

CONNECT_TIMEOUT = 5
"""Seconds to wait for a connection."""
STATEMENT_TIMEOUT = 5
"""Seconds that one statement may take, so that doctor does not burden a database in trouble."""
LOCK_TIMEOUT = 2
"""Seconds to wait for a lock. A reader waits only for a change of the schema."""
CHECK_TIMEOUT = 15.0
"""Seconds that one check may take, including the network."""

RecordDict: TypeAlias = dict[str, Any]


@dataclass
class Examination:
    """What the checks share. `configuration` is None if it cannot be used; `limits` are then the defaults."""

    address: Address
    replicas: int = 1
    configuration: Configuration | None = None
    limits: DoctorSettings = field(default_factory=DoctorSettings)
    connection: AsyncConnection[Any] | None = field(default=None, repr=False)
    silent: int = 0
    """How often the database accepted a connection and then did not answer within the time of a check."""

    @property
    def catalogue(self) -> Catalogue:
        """The configured operations and providers; only for checks that need the configuration."""
        from idem.cli.base import opening

        assert self.configuration is not None
        return opening.catalogue(self.configuration)

    async def connect(self) -> AsyncConnection[Any]:
        """A new connection without session settings. Raises psycopg.Error; the caller closes it."""
        # psycopg's own timeout does not cover a server that accepts and does not answer.
        async with asyncio.timeout(2 * CONNECT_TIMEOUT):
            return await session.bare(
                self.address, name="idem doctor", connect_timeout=CONNECT_TIMEOUT, prepare_threshold=None
            )

    async def all(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[RecordDict]:
        """The rows of a statement, as records."""
        assert self.connection is not None
        cursor = self.connection.cursor(row_factory=dict_row)
        return await (await cursor.execute(query, parameters)).fetchall()

    async def one(self, query: str, parameters: Mapping[str, Any] | None = None) -> RecordDict:
        """The only row of a statement."""
        (record,) = await self.all(query, parameters)
        return record


Needs: TypeAlias = Literal["nothing", "way", "database", "schema"]
"""way: the database is reachable, but the check opens its own connections."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, what it needs, and its function."""

    name: str
    make: Callable[[Examination], Findings]
    needs: Needs = "schema"
    needs_configuration: bool = False


SETTINGS = {
    **session.STATEMENTS,
    "statement_timeout": f"{STATEMENT_TIMEOUT}s",
    "lock_timeout": f"{LOCK_TIMEOUT}s",
    "idle_in_transaction_session_timeout": "60s",
}


@contextlib.asynccontextmanager
async def _bounded(examination: Examination, check: Check) -> AsyncIterator[None]:
    if check.needs in ("nothing", "way"):
        async with asyncio.timeout(CHECK_TIMEOUT):
            yield
        return
    if examination.connection is None or examination.connection.closed:
        examination.connection = await examination.connect()
    connection = examination.connection
    async with statement_timeout(connection, CHECK_TIMEOUT), connection.transaction():
        await connection.execute("SET TRANSACTION READ ONLY")
        await connection.execute(session.SETTINGS, session.parameters(SETTINGS, local=True))
        yield


async def make(examination: Examination, check: Check) -> list[CheckResult]:
    """Run one check. Never raises an Exception: a failure is a finding."""
    what = "this could not be checked"
    try:
        async with _bounded(examination, check):
            found: dict[str, list[CheckResult]] = {}
            async for each in check.make(examination):
                same = found.setdefault(each.check or check.name, [])
                if each.level != "ok" or not same:
                    same.append(replace(each, check=each.check or check.name))
            return [each for same in found.values() for each in same]
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable, TimeoutError) as late:
        if isinstance(late, TimeoutError):
            examination.silent += check.needs in ("database", "schema")
            await _drop(examination)
        why = "the database is busy, or a table is far larger than it should be"
        if isinstance(late, psycopg.errors.LockNotAvailable):
            why = "another session has locked a table"
        what += f" within {STATEMENT_TIMEOUT} s: {why}"
        do = "Check what runs and waits in pg_stat_activity, then run idem doctor again"
    except psycopg.errors.InsufficientPrivilege as refused:
        what, do = f"{what}: {first_line(refused)}", _rights(examination, first_line(refused))
    except (psycopg.Error, OSError) as failed:
        if isinstance(failed, psycopg.OperationalError | OSError):
            await _drop(examination)
        what += f": {first_line(failed)}"
        do = "If the database is restarting, wait and run idem doctor again; if not, see its log"
    except Exception as broken:  # a bug in one check must not hide what the others find
        what += f" because of a bug in idem: {type(broken).__name__}: {first_line(broken)}"
        do = "The other findings are valid; keep this line and report it"
    return [error(what, do, check.name)]


def _rights(examination: Examination, said: str) -> str:
    role = "ROLE" if examination.connection is None else examination.connection.info.user
    # PostgreSQL names the object without its schema. PostgreSQL's own objects begin with pg_, in every language.
    return monitor(role) if re.search(r"\bpg_", said) else granting(role)


async def _drop(examination: Examination) -> None:
    if examination.connection is not None:
        await close(examination.connection)
        examination.connection = None


async def close(connection: AsyncConnection[Any]) -> None:
    """Close within a second: a server that does not answer does not read a Terminate message either."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(1):
            await connection.close()


def first_line(problem: BaseException) -> str:
    """An exception in one line."""
    return next(iter(str(problem).strip().splitlines()), type(problem).__name__)[:300]
