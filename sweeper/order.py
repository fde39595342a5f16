"""Promotes what waits for its turn by an ordering key, where the statement that let the row before it go could not.

That statement does not see a follower whose accept had not committed then, and passes over rows that other sessions
lock (`idem.outbox.settle.order`). Here too nothing waits for a lock: the next pass asks again.
"""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.settle.order import FIRST_KEY, KeyPlace, enter, promote_page


async def promote_waiting(
    connection: AsyncConnection[Any], *, batch: int, after: KeyPlace = FIRST_KEY
) -> tuple[int, KeyPlace | None]:
    """Promote the first row of each of the next `batch` keys that wait, where nothing blocks it; how many, and the last
    of the keys (None: there are no more).

    The first page also gives a place to rows that came back to work after an operator had taken them out of the order.
    """
    if after == FIRST_KEY:
        await enter(connection, batch=batch)
    done, last = await promote_page(connection, batch=batch, after=after)
    return len(done), last
