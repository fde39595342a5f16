"""Rows that commits which the database has forgotten may have sent, and that may not be sent again any more: `unknown`.

While the provider is sure to remember the key a second send is harmless, so such a row stays queued or at rest; from
then on the reconciler asks about it (docs/design.md, Recovery).
"""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import NOT_SENT_YET
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.settle import decide, replay_window
from idem.outbox.settle.change_pages import Place, change_page
from idem.outbox.settle.locked_rows import LockedRow

DOUBTED = """
SELECT c.id, c.doubted_since
  FROM idem.outbox c
 WHERE c.doubted_since IS NOT NULL AND c.status IN ('approval', 'pending', 'waiting', 'unfrozen', 'held')
   AND (c.doubted_since, c.id) > (%(at)s, %(row)s)
 ORDER BY c.doubted_since, c.id
 LIMIT %(batch)s
"""


async def end_doubted(
    connection: AsyncConnection[Any], catalogue: Catalogue, *, batch: int, place: Place | None = None
) -> list[Change]:
    """Make up to `batch` doubted rows unknown whose time to be sent is over, in one transaction; what was written."""

    def make(found: LockedRow) -> Change | None:
        row = found.row
        terms = catalogue.cautious_of(row)
        left = replay_window.time_left(row, terms)
        if row.is_local_step or row.status not in NOT_SENT_YET or left is None or left > 0:
            return None
        why = "lost commits may have sent it, and the provider may no longer remember its key"
        evidence = Evidence("sweeper", "database_changed", details={"why": why, "by": "daemon"})
        return decide.database_changed(row, evidence, terms)

    done = await change_page(connection, DOUBTED, make, batch=batch, place=place or Place())
    return [change for _, change in done]
