"""Pages of outbox rows: picked by their time, locked by their id, decided from what they are under the lock.

A row that a page leaves alone (locked by another session, not writable, not to be touched) is never read twice in
a pass, so it cannot hide the rows behind it (IB-022); the next pass begins anew and finds it again.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, LiteralString, TypeAlias
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from idem.outbox.database.pool import REFUSED
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.transition import Change
from idem.outbox.observe import after_commit, daemon_events, telemetry
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import LockedRow, read_locked

Make: TypeAlias = Callable[[LockedRow], Change | None]
"""What becomes of a row under its lock; None: it is left alone."""


@dataclass(slots=True)
class Place:
    """How far a pass has come: the time and the id of the last row that it looked at. Moved by each page.

    `refused` is what the database said when it last refused every row of a page.
    """

    at: datetime = field(default_factory=lambda: datetime.min.replace(tzinfo=UTC))
    row: UUID = field(default_factory=lambda: UUID(int=0))
    over: bool = False
    refused: psycopg.Error | None = None

    def parameters(self, batch: int) -> dict[str, Any]:
        """What a statement that picks a page is given."""
        return {"at": self.at, "row": self.row, "batch": batch}

    def move(self, picked: Sequence[tuple[Any, ...]], batch: int) -> None:
        """Stand behind these rows, whose first columns are the id and the time."""
        self.over = len(picked) < batch
        if picked:
            self.row, self.at = picked[-1][0], picked[-1][1]


async def walk(page: Callable[[Place], Awaitable[Sized]], over: Callable[[], bool] = lambda: False) -> int:
    """Change page after page to the last, or until `over`; how many rows. Raises what refused every row of a page."""
    changed, place = 0, Place()
    while not (place.over or over()):
        changed += len(await page(place))
    if place.refused is not None:
        raise place.refused
    return changed


async def change_page(
    connection: AsyncConnection[Any],
    pick: LiteralString,
    make: Make,
    *,
    batch: int,
    place: Place,
    values: Mapping[str, Any] | None = None,
    daemon: str = "sweeper",
) -> list[tuple[OutboxRow, Change]]:
    """Change the rows of the next page in one transaction; the rows and changes that were written.

    If the page cannot be written whole, its rows are written one by one, so that one bad row does not keep the others
    (hazard 20). `values`: what `pick` is given beside the place; `daemon`: in whose name a row that cannot be written
    is logged. Raises psycopg.Error if the database is away.
    """
    picked = await (await connection.execute(pick, {**place.parameters(batch), **(values or {})})).fetchall()
    place.move(picked, batch)
    ids = [record[0] for record in picked]
    if not ids:
        return []
    try:
        return await _change(connection, ids, make, daemon)
    except psycopg.Error:
        if connection.closed:
            raise
        return await _change_one_by_one(connection, ids, make, place, daemon)


# By id, as everywhere. Whether the rows still are what they were picked for is read after the lock: a status here
# would let the planner read the whole partial index of that status and filter it for each row.
LOCK = "SELECT o.id FROM idem.outbox o WHERE o.id = ANY (%(ids)s) ORDER BY o.id FOR UPDATE SKIP LOCKED"


async def _change(
    connection: AsyncConnection[Any], ids: Sequence[UUID], make: Make, daemon: str
) -> list[tuple[OutboxRow, Change]]:
    async with after_commit.transaction(connection):
        locked = await (await connection.execute(LOCK, {"ids": ids})).fetchall()
        wanted: list[tuple[OutboxRow, Change]] = []
        for found in await read_locked(connection, [record[0] for record in locked]):
            change = _decided(found, make, daemon)
            if change is not None:
                wanted.append((found.row, change))
        written = await write(connection, [change for _, change in wanted])
    return [(row, change) for row, change in wanted if row.id in written]


def _decided(found: LockedRow, make: Make, daemon: str) -> Change | None:
    try:
        return make(found)
    except Exception as error:  # one row must never stop the others: it is left alone, and a person sees the line
        telemetry.broken(daemon, error, f"deciding about {found.row.intent_id}; it stays unchanged")
        return None


async def _change_one_by_one(
    connection: AsyncConnection[Any], ids: Sequence[UUID], make: Make, place: Place, daemon: str
) -> list[tuple[OutboxRow, Change]]:
    done: list[tuple[OutboxRow, Change]] = []
    refused: list[tuple[UUID, psycopg.Error]] = []
    for row_id in ids:
        try:
            done += await _change(connection, [row_id], make, daemon)
        except psycopg.Error as error:
            if connection.closed:
                raise
            refused.append((row_id, error))
    if len(refused) == len(ids):
        # Hardly the rows' fault: the caller looks at the other pages, and says it once.
        place.refused = refused[-1][1]
        return done
    for row_id, reason in refused:
        if isinstance(reason, REFUSED):
            daemon_events.left_locked(f"outbox row {row_id}")
            continue
        telemetry.broken(daemon, reason, f"changing outbox row {row_id}; it stays unchanged")
    return done
