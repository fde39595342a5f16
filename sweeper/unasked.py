"""Finds rows that no daemon serves any more: each gets a dead letter, so that an operator can decide.

Their operation, provider or account has left the configuration, or no reconciler runs. The rows themselves say since
when they are overdue, so this needs no configuration. A dead letter here changes no state: a daemon that knows the row
again continues with it, and its settlement closes the entry.
"""

import json
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import OutboxStatus, Reason
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.settle import decide
from idem.outbox.settle.change_pages import Place, change_page
from idem.outbox.settle.locked_rows import LockedRow

UNASKED_AFTER: Final = 86400.0
"""Seconds after which a look-up that is due and was not made gets a dead letter."""
WHY: Final = (
    "its look-up has been due for more than a day and no reconciler made it: is a reconciler running, or is its lane "
    "paused, and are its operation, provider and account configured there? `idem doctor` lists the rows that no "
    "process serves"
)

# A lane that is paused waits on purpose; `doctor` tells of the pause. Where calls are paused, a row may wait for its
# replay for as long as it can be replayed (`due.CLAIM_DUE`), and is asked about as all others are after that. No
# order by the index: it begins with the lane, and what is a day late is little.
UNASKED = """
SELECT c.id, c.available_at
  FROM idem.outbox c
 WHERE c.status IN ('unknown', 'awaiting')
   AND c.available_at <= statement_timestamp() - make_interval(secs => %(unasked)s)
   AND (c.available_at, c.id) > (%(at)s, %(row)s)
   AND (c.claim_token IS NULL OR c.claimed_until <= statement_timestamp())
   AND (SELECT bool_or(l.lookups_paused
                       OR l.paused AND c.status = 'unknown' AND NOT c.inline AND NOT c.key_burned
                          AND idem.memory_left(c.first_sent_at, c.doubted_since, c.replay_window,
                                               (%(stated)s::jsonb ->> c.provider)::float8) > 0)
          FROM idem.lanes l
         WHERE l.provider = c.provider AND l.account IN (c.account, '')) IS NOT TRUE
   AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
         WHERE d.intent_id = c.intent_id
           AND d.reason IN ('not_settleable', 'reconcile_exhausted', 'pending_too_long')) IS NOT TRUE
 ORDER BY c.available_at, c.id
 LIMIT %(batch)s
"""


async def report_unasked(
    connection: AsyncConnection[Any], catalogue: Catalogue, *, batch: int, place: Place | None = None
) -> list[Change]:
    """Open an entry for up to `batch` unknown or awaiting rows whose look-up is a day late; the changes.

    `not_settleable` for an unknown row, `pending_too_long` for an awaiting one.
    """

    def make(found: LockedRow) -> Change | None:
        row = found.row
        if row.status not in (OutboxStatus.UNKNOWN, OutboxStatus.AWAITING) or found.stored:
            return None
        reason = Reason.NOT_SETTLEABLE if row.status is OutboxStatus.UNKNOWN else Reason.PENDING_TOO_LONG
        details = {"why": WHY, "provider": row.provider, "account": row.account, "operation": row.operation}
        terms = catalogue.cautious_of(row)
        return decide.with_dead_letter(row, Evidence("sweeper", "unasked"), terms, DeadLetter(reason, details))

    place = place or Place()
    values = {"unasked": UNASKED_AFTER, "stated": json.dumps(catalogue.memories)}
    done = await change_page(connection, UNASKED, make, batch=batch, place=place, values=values)
    return [change for _, change in done]


NOT_REDRIVEN = """
SELECT c.id, c.redrive_at
  FROM idem.outbox c
 WHERE c.redrive_at <= statement_timestamp() AND c.start_before <= statement_timestamp()
   AND (c.redrive_at, c.id) > (%(at)s, %(row)s)
 ORDER BY c.redrive_at, c.id
 LIMIT %(batch)s
"""


async def end_redrives(
    connection: AsyncConnection[Any], catalogue: Catalogue, *, batch: int, place: Place | None = None
) -> list[Change]:
    """Rest up to `batch` rows whose automatic redrive was not made while the row could still be started; the changes.

    No process that knows the operation ran in time, and a redrive would be too late now: the dead letter is `too_late`.
    """

    def make(found: LockedRow) -> Change | None:
        row = found.row
        if row.status is not OutboxStatus.HELD or not row.redrives_itself or row.start_left > 0 or found.stored:
            return None
        return decide.too_old(row, catalogue.cautious_of(row))

    done = await change_page(connection, NOT_REDRIVEN, make, batch=batch, place=place or Place())
    return [change for _, change in done]
