"""`Prefer: wait`: one small repeated statement serves all waiters of a process.

Waiting reads only: it never takes up a key, so a client that goes away changes nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.accept import accept
from idem.outbox.accept.status import KEYS_A_STATEMENT, RequestIdentity, Status
from idem.outbox.accept.waiting import Waiting
from idem.outbox.api.store import unavailable
from idem.outbox.daemon.retry import RetryLoop
from idem.outbox.database.pool import Database, records, time_limited
from idem.outbox.domain.decisions import InProgress
from idem.outbox.observe import telemetry
from idem.outbox.values.sql_parameters import pyformat

SECONDS_A_KEY: Final = 0.00005
"""What a look may cost: twenty thousand different keys are looked at every second instead of every `poll`."""


class Waiters:
    """All requests of this process that wait for a final answer.

    It has a connection of its own: those who wait must not wait for those who ask too. `poll` in seconds is the time
    between two polls. `run` must be running, and must have ended before the pool does.
    """

    def __init__(self, database: Database, poll: float) -> None:
        self._database = database
        self._poll = poll
        self._waiting = Waiting()
        self._somebody = asyncio.Event()
        self._closing = False
        self._connection: AsyncConnection[Any] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, request: RequestIdentity, seconds: float) -> Status:
        """The end of a request, or its status after `seconds`. Raises ProblemError if the database cannot answer."""
        self._somebody.set()
        found = await self._waiting.wait(request, 0.0 if self._closing else seconds, ours=False)
        return InProgress(None, None, accept.MINIMUM_RETRY_AFTER) if found is None else found

    def close(self) -> None:
        """Let every waiter return at the next look-up."""
        self._closing = True
        self._waiting.hurry()
        self._somebody.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop` is set and every waiter is answered. `wake_at` runs beside it."""
        retry = RetryLoop("api waiting", daemon="api", doing="waiting")

        async def poll() -> None:
            statements = 1 + self._waiting.requests // KEYS_A_STATEMENT
            await time_limited(self._database.timeouts.silence(statements), self._poll_once())
            retry.over()

        async def failed() -> None:
            await self._hang_up()
            self._waiting.give_up(unavailable)

        while not (stop.is_set() and not self._waiting):
            if not self._waiting:
                self._somebody.clear()
                await self._somebody.wait()
                continue
            telemetry.waiting(len(self))
            await retry.attempt(poll, stop, failed=failed)
            if self._waiting:
                await asyncio.sleep(
                    max(self._poll, SECONDS_A_KEY * self._waiting.requests) if not self._closing else 0.01
                )
            telemetry.waiting(len(self))
        await self._hang_up()

    async def wake_at(self, stop: asyncio.Event) -> None:
        """End the rest of `run` when `stop` is set: runs beside it, so that an idle one need not look every second."""
        await stop.wait()
        self._somebody.set()

    async def _poll_once(self) -> None:
        connection = await self._dedicated()

        async def rows(statement: str, values: Mapping[str, Any]) -> Sequence[Any]:
            return await (await records(connection).execute(pyformat(statement), values)).fetchall()

        await self._waiting.poll(rows)

    async def _dedicated(self) -> AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.dedicated()
        return self._connection

    async def _hang_up(self) -> None:
        # Dropped first: a look that was abandoned may still be ending on it.
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
