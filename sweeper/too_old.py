"""Rests queued rows whose time to start has passed, and those that nobody has approved in that time: they were never
sent, so an operator or the client decides."""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import QUEUED, OutboxStatus
from idem.outbox.domain.transition import Change
from idem.outbox.observe import telemetry
from idem.outbox.settle import decide
from idem.outbox.settle.change_pages import Place, change_page
from idem.outbox.settle.locked_rows import LockedRow

TOO_OLD = """
SELECT c.id, c.start_before
  FROM idem.outbox c
 WHERE '' || c.status IN ('approval', 'pending', 'waiting', 'unfrozen') AND c.start_before <= statement_timestamp()
   AND (c.start_before, c.id) > (%(at)s, %(row)s)
 ORDER BY c.start_before, c.id
 LIMIT %(batch)s
"""


async def hold_too_old(
    connection: AsyncConnection[Any], catalogue: Catalogue, *, batch: int, place: Place | None = None
) -> list[Change]:
    """Hold up to `batch` queued rows that are too old, in one transaction; the changes that were written.

    Row and claim meet on the row's lock, and the claim refuses a row of this age by itself. How old is too old stands
    in the row, so this needs no configuration (IB-023).
    """

    def make(found: LockedRow) -> Change | None:
        row = found.row
        if row.status not in QUEUED | {OutboxStatus.APPROVAL} or row.start_left > 0 or found.stored:
            # A row with a stored proof is not folded here but left to the reconciler: the proof says that something
            # happened, so "too old, nothing was sent" is no longer what this row is about. No claim takes it meanwhile.
            return None
        return decide.too_old(row, catalogue.cautious_of(row))

    done = await change_page(connection, TOO_OLD, make, batch=batch, place=place or Place())
    for row, _ in done:
        telemetry.too_old(row.intent_id)
    return [change for _, change in done]
