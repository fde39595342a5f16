"""The list of rows that recovery has still to doubt: no statement changes or sends a row that is listed.

One statement lists every open row and locks none, so no row lock of another session can keep a row out of the list,
and no row can slip through by changing its status. `quarantine` works the list off row by row.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import is_true, records

# For a row `c` or `o`. A subquery that gives one value, as for stored proofs (`claim`).
C_IS_LISTED = "(SELECT b.outbox_id FROM idem.doubts b WHERE b.outbox_id = c.id LIMIT 1) IS NOT NULL"
O_IS_LISTED = "(SELECT b.outbox_id FROM idem.doubts b WHERE b.outbox_id = o.id LIMIT 1) IS NOT NULL"

LIST = """
INSERT INTO idem.doubts (outbox_id, details)
SELECT o.id, %(details)s::jsonb FROM idem.outbox o
    ON CONFLICT (outbox_id) DO NOTHING
"""


async def list_open(connection: AsyncConnection[Any], why: str, *, by: str = "daemon") -> int:
    """List every open row that is not listed yet; how many. Commit it together with what says that commits were lost.

    What a listed row had been listed for before covers this as well: it was not sent since.
    """
    return (await connection.execute(LIST, {"details": json.dumps({"why": why, "by": by})})).rowcount


# What `idem recover --lost` has said stands.
TAKE_BACK = """
DELETE FROM idem.doubts d
 WHERE d.listed_at > coalesce((SELECT i.lost_at FROM idem.installation i), '-infinity')
"""


async def take_back(connection: AsyncConnection[Any]) -> int:
    """Take from the list what daemons have put there since the last `idem recover --lost`; how many rows."""
    return (await connection.execute(TAKE_BACK)).rowcount


IS_LISTED = "SELECT EXISTS (SELECT FROM idem.doubts d WHERE d.outbox_id = %(id)s)"


async def is_listed(connection: AsyncConnection[Any], row: UUID) -> bool:
    """Whether this row is still to be doubted."""
    return await is_true(connection, IS_LISTED, {"id": row})


PAGE = "SELECT d.outbox_id FROM idem.doubts d WHERE d.outbox_id > %(after)s ORDER BY d.outbox_id LIMIT %(limit)s"


async def page(connection: AsyncConnection[Any], *, after: UUID, limit: int) -> list[UUID]:
    """The next listed rows behind this one, in the order of their ids."""
    found = await (await connection.execute(PAGE, {"after": after, "limit": limit})).fetchall()
    return [record[0] for record in found]


WORKED_OFF = "DELETE FROM idem.doubts d WHERE d.outbox_id = ANY (%(ids)s)"


async def worked_off(connection: AsyncConnection[Any], rows: list[UUID]) -> None:
    """Take rows from the list whose entries this transaction has locked."""
    if rows:
        await connection.execute(WORKED_OFF, {"ids": rows})


@dataclass(frozen=True, slots=True)
class ListedRows:
    """Listed rows that are not doubted yet: how many, the first of them, and the age of the oldest in seconds."""

    rows: int = 0
    first: UUID | None = None
    oldest: float = 0.0


WAITING = """
SELECT count(*)::integer AS rows, (array_agg(d.outbox_id ORDER BY d.outbox_id))[1] AS first,
       coalesce(extract(epoch FROM statement_timestamp() - min(d.listed_at)), 0)::float8 AS oldest
  FROM idem.doubts d
"""


async def waiting(connection: AsyncConnection[Any]) -> ListedRows:
    """What is still listed: rows that another session holds (or their key, intent or entry), or of which no sweeper
    has taken care yet."""
    record = await (await records(connection).execute(WAITING)).fetchone()
    assert record is not None
    return ListedRows(record.rows, record.first, record.oldest)
