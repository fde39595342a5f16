"""One statement that says for all lanes of an idle worker whether rows are due, and whether rows wait to be rendered.

A claim that finds nothing is what an idle worker would send all day, for each of its lanes. A hint, a freed slot or a
result is followed by the claim itself.
"""

import asyncio
from collections.abc import Collection
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.database.channel import lane_of
from idem.outbox.database.pool import Database, records
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.values import clock
from idem.outbox.worker.queue_position import QueuePosition
from idem.outbox.worker.unfrozen import WAITS, Source, source_columns

UNFROZEN: Final = "unfrozen"
PATIENCE: Final = 0.2
"""Seconds after which a lane claims for itself, because the common poll has not answered."""
SLOW: Final = 0.1
ALONE: Final = 30.0
"""Seconds for which each lane claims for itself after a poll that took `SLOW`, an only lane too: each has a pace of its
own, so that one with millions of dead entries slows down none but itself, and is read seldom from its head."""

# Each part goes by the index that its claim goes by, from the same place on and in its order: one row is read, of those
# that no claim can take too.
DUE_ROWS = f"""
SELECT statement_timestamp() AS at,
       ARRAY(SELECT l.number::integer
               FROM unnest(%(lane_providers)s::text[], %(lane_accounts)s::text[], %(from_times)s::timestamptz[],
                           %(from_ids)s::uuid[])
                    WITH ORDINALITY AS l (provider, account, from_time, from_id, number)
              WHERE (SELECT c.id FROM idem.outbox c
                      WHERE c.status = 'pending' AND c.provider = l.provider AND c.account = l.account
                        AND c.available_at <= statement_timestamp()
                        AND (c.available_at, c.id) >= (l.from_time, l.from_id)
                      ORDER BY c.available_at, c.id LIMIT 1) IS NOT NULL) AS lanes,
       ({WAITS}) AS unfrozen
"""  # noqa: S608


class IdlePoll:
    """What the lanes and the freezer of one worker ask together, at the same moments: `interval` seconds apart."""

    def __init__(self, database: Database, interval: float) -> None:
        self._interval = interval
        self._began = clock.boottime()
        self._database = database
        self._lanes: list[tuple[LaneScope, QueuePosition]] = []
        self._sources: list[Source] = []
        self._asking: asyncio.Task[frozenset[str]] | None = None
        self._fresh_until = 0.0
        self._late: asyncio.Task[frozenset[str]] | None = None
        self._alone_until = 0.0

    def add(self, lane: LaneScope, position: QueuePosition) -> None:
        """Ask for this lane too. An answer that finds nothing moves its position, as an empty claim does."""
        self._lanes.append((lane, position))

    def render(self, sources: Collection[Source]) -> None:
        """Ask for rows that wait to be rendered too."""
        self._sources += sources

    async def finds(self, lane: LaneScope) -> bool:
        """Whether there may be something to claim in this lane. Raises what an unreachable database raises."""
        return await self._finds(lane_of(lane.provider, lane.account))

    async def finds_unfrozen(self) -> bool:
        """Whether there may be something to render. Raises what an unreachable database raises."""
        return await self._finds(UNFROZEN)

    def wait(self) -> float:
        """Seconds until the next moment at which they ask."""
        left = self._interval - (clock.boottime() - self._began) % self._interval
        # A timer may end just before its time.
        return left if left > self._interval / 20 else left + self._interval

    async def _finds(self, what: str) -> bool:
        now = clock.boottime()
        if now < self._alone_until and (self._asking is None or self._asking.done()):
            return True
        if self._asking is None or (self._asking.done() and (now >= self._fresh_until or _failed(self._asking))):
            self._fresh_until = now + self._interval / 2
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(_failed)
        asking = self._asking
        if asking is not self._late:
            await asyncio.wait({asking}, timeout=PATIENCE)
        if asking.done():
            return what in asking.result()
        # Its line says nothing: one connection must not stop all lanes.
        self._late = asking
        return True

    async def _ask(self) -> frozenset[str]:
        async with self._database.connection() as connection:
            return await self._asked(connection)

    async def _asked(self, connection: AsyncConnection[Any]) -> frozenset[str]:
        now = clock.boottime()
        begins = [(position.begin(now), position.claims) for _, position in self._lanes]
        cursor = records(connection)
        asked = {
            "lane_providers": [lane.provider for lane, _ in self._lanes],
            "lane_accounts": [lane.account for lane, _ in self._lanes],
            "from_times": [begin[0] for begin, _ in begins],
            "from_ids": [begin[1] for begin, _ in begins],
            **source_columns(self._sources),
        }
        found = await (await cursor.execute(DUE_ROWS, asked, prepare=True)).fetchone()
        assert found is not None
        if clock.boottime() - now >= SLOW:
            self._alone_until = clock.boottime() + ALONE
        names = {UNFROZEN} if found.unfrozen else set()
        for number, ((lane, position), (begin, claims)) in enumerate(zip(self._lanes, begins, strict=True), 1):
            if number in found.lanes:
                names.add(lane_of(lane.provider, lane.account))
            elif position.claims == claims:
                # Else a claim has seen more than this, in a lane that is not idle.
                position.claimed(begin, [], found.at, full=False, now=now, took=0)
        return frozenset(names)


def _failed(asked: asyncio.Task[frozenset[str]]) -> bool:
    # Asked of each task once it is done: who waits for the answer raises the error, and nobody may wait any more.
    return asked.cancelled() or asked.exception() is not None
