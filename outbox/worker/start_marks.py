"""Marks the starts of calls whose provider knows no keys: those that begin at about the same time, in one statement. (A
call that begins with its claim is marked by it: `idem.outbox.worker.claim`.)

Each call waits for its own mark to be committed. The first one is sent at once; what comes while a statement is on its
way goes with the next.
"""

import asyncio
from collections import deque
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
"""Marks of one statement."""


@dataclass(slots=True, eq=False)
class _Mark:
    row: OutboxRow
    needed: float
    made: asyncio.Future[bool]


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
        self._waiting: deque[_Mark] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def mark(self, row: OutboxRow, *, needed: float) -> bool:
        """As `mark_start`, with others. Raises what an unreachable database raises."""
        mark = _Mark(row, needed, asyncio.get_running_loop().create_future())
        self._waiting.append(mark)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        if await mark.made:
            return True
        # Another session holds it, or the claim is over: this call alone waits to hear which.
        async with self._database.connection() as connection:
            return await mark_start(connection, row, needed=needed)

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
                try:
                    async with self._database.connection() as connection:
                        made = await mark_starts(connection, [(each.row, each.needed) for each in batch])
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
                            each.made.set_result(each.row.id in made)
        finally:
            self._writing = None
