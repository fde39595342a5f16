"""Rows whose look-ups are used up by the schedule as it is now: each has a dead letter, even if the schedule changed.

The row has the count of look-ups, and the configuration has the schedule, so a row reaches a shortened schedule without
a look. The same holds for a row whose standing order, which needs no entry, was removed. Such a row would have no entry
until its next look, which may be a day away.
"""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.states import OutboxStatus, Reason
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.settle import decide
from idem.outbox.settle.change_pages import Place, change_page
from idem.outbox.settle.locked_rows import LockedRow
from idem.outbox.settle.step_columns import CALL

# In the order of the lane's own index. The status of an awaiting row, whose look-ups are polls, is checked in the CASE.
USED_UP = f"""
SELECT c.id, c.available_at
  FROM idem.outbox c
 WHERE c.status IN ('unknown', 'awaiting') AND c.provider = %(provider)s AND c.account = %(account)s
   AND (c.available_at, c.id) > (%(at)s, %(row)s)
   AND CASE WHEN c.status = 'unknown' AND c.lookups >= %(length)s AND {CALL} = ANY (%(calls)s)
            THEN (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
                   WHERE d.intent_id = c.intent_id AND d.reason IN ('not_settleable', 'reconcile_exhausted'))
                 IS NOT TRUE END
   AND c.claim_token IS NULL
 ORDER BY c.available_at, c.id
 LIMIT %(batch)s
"""  # noqa: S608


async def open_entries(
    connection: AsyncConnection[Any], catalogue: Catalogue, lane: LaneScope, batch: int, place: Place
) -> list[Change]:
    """Open `reconcile_exhausted` for the next `batch` rows of a lane that lack it; the changes that were written.

    A row under a standing order needs none: its next look carries the order out.
    """
    schedule = catalogue.providers[lane.provider].contract.schedule

    def make(found: LockedRow) -> Change | None:
        row, terms = found.row, catalogue.of(found.row)
        free = row.status is OutboxStatus.UNKNOWN and row.token is None and row.lookups >= len(schedule)
        if terms is None or terms.standing_order is not None or not free or found.stored:
            return None
        details = {"lookups": row.lookups, "absences": row.absences, "why": "no look-up of the schedule is left"}
        letter = DeadLetter(Reason.RECONCILE_EXHAUSTED, details)
        return decide.with_dead_letter(row, Evidence("reconciler", "schedule_used_up"), terms, letter)

    values = {
        "provider": lane.provider, "account": lane.account, "length": len(schedule),
        "calls": list(lane.calls),
    }  # fmt: skip
    done = await change_page(
        connection, USED_UP, make, batch=batch, place=place, values=values, daemon="reconciler"
    )  # fmt: skip
    return [change for _, change in done]
