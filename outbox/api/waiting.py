"""`Prefer: wait`: one small repeated statement serves all waiters of a process.

Waiting reads only: it never takes up a key, so a client that goes away changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.accept import accept
from idem.outbox.accept.status import ENDED, KEYS_A_STATEMENT, STATUS, RequestIdentity, Status, columns, status_of
from idem.outbox.api.store import unavailable
from idem.outbox.daemon.daemon import BROKEN_WAIT, Trouble, wait
from idem.outbox.database.pool import AWAY, REFUSED, Database, records, within
from idem.outbox.domain.decisions import InProgress
from idem.outbox.observe import telemetry

SECONDS_A_KEY: Final = 0.00005
"""What a look may cost: twenty thousand different keys are looked at every second instead of every `poll`."""


@dataclass(slots=True)
class _Waiter:
    until: float
    status: asyncio.Future[Status]


class Waiters:
    """All requests of this process that wait for a final answer.

    It has a connection of its own: those who wait must not wait for those who ask too. `poll` in seconds is the time
    between two looks. `run` must be running, and must have ended before the pool does.
    """

    def __init__(self, database: Database, poll: float) -> None:
        self._database = database
        self._poll = poll
        self._waiting: dict[RequestIdentity, list[_Waiter]] = defaultdict(list)
        self._somebody = asyncio.Event()
        self._closing = False
        self._connection: AsyncConnection[Any] | None = None

    def __len__(self) -> int:
        return sum(len(waiters) for waiters in self._waiting.values())

    async def wait(self, identity: RequestIdentity, seconds: float) -> Status:
        """The final status of a request, or its status after `seconds`. Raises ProblemError if it cannot be read."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(0.0 if self._closing else loop.time() + seconds, loop.create_future())
        self._waiting[identity].append(waiter)
        self._somebody.set()
        try:
            return await waiter.status
        finally:
            self._leave(identity, waiter)

    def close(self) -> None:
        """Let every waiter return at the next look-up."""
        self._closing = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.until = 0.0
        self._somebody.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop` is set and every waiter is answered."""
        trouble = Trouble("api waiting")
        while not (stop.is_set() and not self._waiting):
            if not self._waiting:
                self._somebody.clear()
                await wait(self._somebody, 1.0)
                continue
            telemetry.waiting(len(self))
            try:
                statements = 1 + len(self._waiting) // KEYS_A_STATEMENT
                await within(self._database.timeouts.silence(statements), self._look())
                trouble.over()
            except AWAY as error:
                await self._hang_up()
                self._give_up_those_in_time()
                await trouble.away(error, stop)
            except REFUSED as error:
                await self._hang_up()
                self._give_up_those_in_time()
                await trouble.refused(error, stop)
            except Exception as error:  # whoever waits is answered at the end of his time, and a person sees the line
                telemetry.broken("api", error, "waiting")
                await self._hang_up()
                self._give_up_those_in_time()
                await wait(stop, BROKEN_WAIT)
            if self._waiting:
                await asyncio.sleep(max(self._poll, SECONDS_A_KEY * len(self._waiting)) if not self._closing else 0.01)
            telemetry.waiting(len(self))
        await self._hang_up()

    async def _look(self) -> None:
        requests = list(self._waiting)
        connection = await self._dedicated()
        moved = await ended(connection, requests)
        now = asyncio.get_running_loop().time()
        over = {
            identity for identity in requests if any(waiter.until <= now for waiter in self._waiting.get(identity, ()))
        }
        asked = iter([identity for identity in requests if identity in moved or identity in over])
        while chunk := list(islice(asked, KEYS_A_STATEMENT)):
            found = await statuses(connection, chunk)
            for identity in chunk:
                self._resolve(
                    identity, found.get(identity, InProgress(None, None, accept.MINIMUM_RETRY_AFTER)), identity in moved
                )

    async def _dedicated(self) -> AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.dedicated()
        return self._connection

    async def _hang_up(self) -> None:
        # Dropped first: a look that was abandoned may still be ending on it.
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _resolve(self, identity: RequestIdentity, status: Status, final: bool) -> None:
        now = asyncio.get_running_loop().time()
        for waiter in self._waiting.get(identity, ()):
            if not waiter.status.done() and (final or waiter.until <= now):
                waiter.status.set_result(status)

    def _give_up_those_in_time(self) -> None:
        now = asyncio.get_running_loop().time()
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.status.done() and waiter.until <= now:
                    waiter.status.set_exception(unavailable())

    def _leave(self, identity: RequestIdentity, waiter: _Waiter) -> None:
        waiters = self._waiting[identity]
        waiters.remove(waiter)
        if not waiters:
            del self._waiting[identity]


async def ended(connection: AsyncConnection[Any], requests: Sequence[RequestIdentity]) -> set[RequestIdentity]:
    """The requests that are settled, or that need an operator."""
    cursor = await connection.execute(accept.pyformat(ENDED), columns(requests))
    return {requests[number] for (number,) in await cursor.fetchall()}


async def statuses(
    connection: AsyncConnection[Any], requests: Sequence[RequestIdentity]
) -> dict[RequestIdentity, Status]:
    """The status of each request; a request that is not here is not committed yet."""
    rows = await (await records(connection).execute(accept.pyformat(STATUS), columns(requests))).fetchall()
    return {requests[row.number]: status_of(row) for row in rows}
