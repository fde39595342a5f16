"""Claims whose lease ran out, worker's and inline alike: `unknown`, and never simply run again."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from idem.outbox import decide, telemetry
from idem.outbox.catalogue import Catalogue
from idem.outbox.change import Change
from idem.outbox.rows import Found
from idem.outbox.states import OutboxStatus
from idem.outbox.sweeping.pages import Place, change_page

EXPIRED = """
SELECT c.id, c.claimed_until
  FROM idem.outbox c
 WHERE c.status = 'claimed' AND c.claimed_until <= statement_timestamp()
   AND (c.claimed_until, c.id) > (%(at)s, %(row)s)
 ORDER BY c.claimed_until, c.id
 LIMIT %(batch)s
"""


async def sweep_expired(
    connection: AsyncConnection[Any], catalogue: Catalogue, *, batch: int, place: Place | None = None
) -> list[Change]:
    """End up to `batch` claims whose lease is over, in one transaction; the changes that were written.

    A row that is not configured here is swept all the same, under the longest waits (IB-023). Without `place` the page
    begins with the oldest lease; with it, where the last page ended.
    """

    def make(found: Found) -> Change | None:
        row = found.row
        if row.status is not OutboxStatus.CLAIMED or row.live:
            return None
        return decide.swept(row, found.stored, catalogue.cautious(row.operation, row.provider))

    done = await change_page(connection, EXPIRED, make, batch=batch, place=place or Place())
    for row, change in done:
        telemetry.swept(row.intent_id, row.attempt, row.holder, change.status)
    return [change for _, change in done]
