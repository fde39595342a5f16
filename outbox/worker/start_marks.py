"""Marks the starts of calls whose provider knows no keys: those that begin at about the same time, in one statement.

Each call waits for its own mark to be committed. The first one is sent at once; what comes while a statement is on its
way goes with the next.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database import arrays
from idem.outbox.database.pool import Database
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.settle.doubted_rows import O_IS_LISTED
from idem.outbox.worker.claim import mark_start

MOST = 100
"""Marks of one statement; more only where one claim has more rows."""


@dataclass(slots=True, eq=False)
class _Group:
    rows: Sequence[OutboxRow]
    needed: float
    made: asyncio.Future[set[UUID]]


# What another session holds is left out: its call asks by itself. The status stands in a CASE, as in MARK_START.
MARK_STARTS = f"""
WITH input AS MATERIALIZED (
    SELECT u.* FROM unnest(%(ids)b::uuid[], %(attempts)b::integer[], %(tokens)b::uuid[], %(needed)b::float8[])
           AS u (id, attempt, token, needed)
), free AS MATERIALIZED (
    SELECT o.id FROM idem.outbox o WHERE o.id = ANY (%(ids)b) ORDER BY o.id FOR UPDATE SKIP LOCKED
)
UPDATE idem.outbox o SET started_at = statement_timestamp()
  FROM input i
 WHERE o.id = ANY (ARRAY[i.id]) AND o.attempt = i.attempt AND i.id = ANY (ARRAY(SELECT f.id FROM free f))
   AND CASE WHEN o.status = 'claimed' AND o.claim_token = i.token
            THEN o.claimed_until > statement_timestamp() + make_interval(secs => i.needed) END
   AND NOT {O_IS_LISTED}
RETURNING o.id
"""  # noqa: S608


async def mark_starts(connection: AsyncConnection[Any], rows: list[tuple[OutboxRow, float]]) -> set[UUID]:
    """Commit that these claims are about to send, where a lease has the seconds that are given with it; the ids."""
    cursor = await connection.execute(
        MARK_STARTS,
        {
            "ids": arrays.uuids([row.id for row, _ in rows]),
            "attempts": arrays.integers([row.attempt for row, _ in rows]),
            "tokens": arrays.uuids([row.token for row, _ in rows]),
            "needed": arrays.floats([needed for _, needed in rows]),
        },
        prepare=True,
    )
    return {record[0] for record in await cursor.fetchall()}


class StartMarks:
    """The marks of one worker. Belongs to one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Group] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def together(self, rows: Sequence[OutboxRow], *, needed: float) -> set[UUID]:
        """Mark these, with others; the ids of those that are. Of the others another session holds the row, or the claim
        is over. Raises what an unreachable database raises."""
        group = _Group(rows, needed, asyncio.get_running_loop().create_future())
        self._waiting.append(group)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await group.made

    async def mark(self, row: OutboxRow, *, needed: float) -> bool:
        """As `mark_start`, with others. Raises what an unreachable database raises."""
        if row.id in await self.together([row], needed=needed):
            return True
        # Another session holds it, or the claim is over: this call alone waits to hear which.
        async with self._database.connection() as connection:
            return await mark_start(connection, row, needed=needed)

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = self._next()
                try:
                    async with self._database.connection() as connection:
                        made = await mark_starts(
                            connection, [(row, each.needed) for each in batch for row in each.rows]
                        )
                except BaseException as error:
                    for each in batch:
                        if not each.made.done():
                            each.made.set_exception(error)
                            each.made.exception()
                    if not isinstance(error, Exception):
                        raise
                else:
                    for each in batch:
                        if not each.made.done():
                            each.made.set_result(made)
        finally:
            self._writing = None

    def _next(self) -> list[_Group]:
        batch = [self._waiting.popleft()]
        rows = len(batch[0].rows)
        while self._waiting and rows + len(self._waiting[0].rows) <= MOST:
            batch.append(self._waiting.popleft())
            rows += len(batch[-1].rows)
        return batch
