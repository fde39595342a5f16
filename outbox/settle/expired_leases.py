"""Claims whose lease ran out, worker's and inline alike: `unknown`, and never simply run again."""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import Source
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.transition import Change
from idem.outbox.observe import telemetry
from idem.outbox.settle import decide
from idem.outbox.settle.change_pages import Make, Place, change_page
from idem.outbox.settle.locked_rows import LockedRow

EXPIRED = """
SELECT c.id, c.claimed_until
  FROM idem.outbox c
 WHERE c.status = 'claimed' AND c.claimed_until <= statement_timestamp()
   AND (c.claimed_until, c.id) > (%(at)s, %(row)s)
 ORDER BY c.claimed_until, c.id
 LIMIT %(batch)s
"""


async def sweep_expired(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    *,
    batch: int,
    place: Place | None = None,
    by: Source = "sweeper",
) -> list[Change]:
    """End up to `batch` claims whose lease is over, in one transaction; the changes that were written.

    A row that is not configured here is swept all the same, under the longest waits (IB-023). Without `place` the page
    begins with the oldest lease; with it, where the last page ended. `by`: who the evidence names.
    """

    done = await change_page(
        connection, EXPIRED, _ending(catalogue, by), batch=batch, place=place or Place(), daemon=by
    )
    for row, change in done:
        telemetry.swept(row.intent_id, row.attempt, row.holder, change.status)
    return [change for _, change in done]


# By the intent's own index: the process that finds one expired claim ends that one.
EXPIRED_OF_INTENT = """
SELECT c.id, c.claimed_until
  FROM idem.outbox c
 WHERE c.intent_id = %(intent)s AND CASE WHEN c.status = 'claimed' THEN c.claimed_until <= statement_timestamp() END
"""


async def sweep_of(connection: AsyncConnection[Any], catalogue: Catalogue, intent: UUID, *, by: Source) -> bool:
    """End the claim of one intent, if its lease is over, in a transaction of its own; whether this did it.

    For a process that finds such a claim before the sweeper does: no client gets `outcome_unknown` for a row that no
    daemon asks about. A row that another session has locked is left alone.
    """
    done = await change_page(
        connection, EXPIRED_OF_INTENT, _ending(catalogue, by), batch=1, place=Place(), values={"intent": intent},
        daemon=by,
    )  # fmt: skip
    for row, change in done:
        telemetry.swept(row.intent_id, row.attempt, row.holder, change.status)
    return bool(done)


def _ending(catalogue: Catalogue, by: Source) -> Make:
    def make(found: LockedRow) -> Change | None:
        row = found.row
        if row.status is not OutboxStatus.CLAIMED or row.live:
            return None
        return decide.swept(row, found.stored, catalogue.cautious_of(row), by)

    return make
