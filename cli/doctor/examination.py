"""One examination: every check alone, bounded in time, in a read-only transaction of its own. Nothing is changed.

A check that cannot be made is a finding. Settings are local to each transaction, because behind a pooler those of a
session would be left to somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.cli.doctor.findings import CheckResult, error, granting, monitor
from idem.cli.patience import within
from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.database import session
from idem.outbox.database.address import Address

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.domain.catalogue import Catalogue

CONNECT_TIMEOUT = 5
"""Seconds to wait for a connection."""
STATEMENT_TIMEOUT = 5
"""Seconds that one statement may take: a database in trouble must not be held up by whoever asks what it has."""
LOCK_TIMEOUT = 2
"""Seconds to wait for a lock: only a change of the schema takes one that a reader waits for."""
CHECK_TIMEOUT = 15.0
"""Seconds that one check may take, whatever the network does."""

Record: TypeAlias = dict[str, Any]


@dataclass
class Examination:
    """What the checks share. `configuration` is None where it cannot be used; `limits` are then the defaults."""

    address: Address
    replicas: int = 1
    configuration: Configuration | None = None
    limits: DoctorSettings = field(default_factory=DoctorSettings)
    connection: AsyncConnection[Any] | None = field(default=None, repr=False)
    silent: int = 0
    """How often the database took a connection and then said nothing within the time of a check."""

    @property
    def catalogue(self) -> Catalogue:
        """The operations and providers that are configured; only for checks that need the configuration."""
        from idem.cli import opening

        assert self.configuration is not None
        return opening.catalogue(self.configuration)

    async def connect(self) -> AsyncConnection[Any]:
        """A new connection, without any setting of a session. Raises psycopg.Error; the caller closes it."""
        # psycopg's own timeout does not cover a server that accepts and says nothing.
        async with asyncio.timeout(2 * CONNECT_TIMEOUT):
            return await session.bare(
                self.address, name="idem doctor", connect_timeout=CONNECT_TIMEOUT, prepare_threshold=None
            )

    async def all(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[Record]:
        """The rows of a statement, as records."""
        assert self.connection is not None
        cursor = self.connection.cursor(row_factory=dict_row)
        return await (await cursor.execute(query, parameters)).fetchall()

    async def one(self, query: str, parameters: Mapping[str, Any] | None = None) -> Record:
        """The only row of a statement."""
        (record,) = await self.all(query, parameters)
        return record


Needs: TypeAlias = Literal["nothing", "way", "database", "schema"]
"""way: the database is reachable, but the check opens connections of its own."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: what it is called, what it needs, and the function that makes it."""

    name: str
    make: Callable[[Examination], Awaitable[Sequence[CheckResult]]]
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
    async with within(connection, CHECK_TIMEOUT), connection.transaction():
        await connection.execute("SET TRANSACTION READ ONLY")
        await connection.execute(session.SETTINGS, session.parameters(SETTINGS, local=True))
        yield


async def make(examination: Examination, check: Check) -> list[CheckResult]:
    """Make one check. Never raises an Exception: what goes wrong is a finding."""
    try:
        async with _bounded(examination, check):
            return list(await check.make(examination))
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable, TimeoutError) as late:
        if isinstance(late, TimeoutError):
            examination.silent += check.needs in ("database", "schema")
            await _drop(examination)
        return [
            error(
                check.name,
                f"this could not be checked within {STATEMENT_TIMEOUT} s: "
                + (
                    "a table is locked by somebody else"
                    if isinstance(late, psycopg.errors.LockNotAvailable)
                    else "the database is busy, or a table is far larger than it should be"
                ),
                "Look for what runs and waits in pg_stat_activity, then run idem doctor again",
            )
        ]
    except psycopg.errors.InsufficientPrivilege as refused:
        return [
            error(
                check.name,
                f"this could not be checked: {first_line(refused)}",
                _rights(examination, first_line(refused)),
            )
        ]
    except (psycopg.Error, OSError) as failed:
        if isinstance(failed, psycopg.OperationalError | OSError):
            await _drop(examination)
        return [
            error(
                check.name,
                f"this could not be checked: {first_line(failed)}",
                "If the database is restarting, wait and run idem doctor again; else see its log",
            )
        ]
    except Exception as broken:  # a fault of one check must not hide what the others find
        return [
            error(
                check.name,
                f"this could not be checked, by a fault of idem's own: {type(broken).__name__}: {first_line(broken)}",
                "The other findings hold; keep this line and report it",
            )
        ]


def _rights(examination: Examination, said: str) -> str:
    role = "ROLE" if examination.connection is None else examination.connection.info.user
    # PostgreSQL names the object without its schema. What is PostgreSQL's own begins with pg_, in every language.
    return monitor(role) if re.search(r"\bpg_", said) else granting(role)


async def _drop(examination: Examination) -> None:
    if examination.connection is not None:
        # A server that does not answer takes no goodbye either.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await examination.connection.close()
        examination.connection = None


def first_line(problem: BaseException) -> str:
    """An exception in one line."""
    return next(iter(str(problem).strip().splitlines()), type(problem).__name__)[:300]
