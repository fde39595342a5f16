"""Renewal: a lease that runs is made longer under its token; one that was lost is never taken back."""

from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.values import clock
from idem.outbox.values.durations import text
from idem.outbox.values.errors import ConfigError

BEATS: Final = 3
"""Renewals for which a lease must have room: with two, one late beat is already too late (IB-012)."""


def interval(operation: OperationSpec, every: float | None) -> float:
    """Seconds between two renewals: `every`, or a third of the lease. Raises ConfigError where there is no room."""
    where = f"operations.{operation.name}"
    if operation.lease <= 0:
        raise ConfigError(
            f"{where}.lease: it is {operation.lease}, which is too short for a call: give seconds above 0"
        )
    if operation.renew_for < 0:
        raise ConfigError(f"{where}.renew_for: it is {operation.renew_for}: give seconds, or 0 for no renewal")
    third = operation.lease / BEATS
    if every is None:
        return third
    if not 0 < every <= third:
        raise ConfigError(
            f"{where}.lease: a renewal every {text(every)} is not within a third of the lease of "
            f"{text(operation.lease)}, so one late renewal would lose the lease: renew at least every {text(third)}, "
            f"or make the lease {text(BEATS * every)} long"
        )
    return every


# A CASE, because a condition on token or status lets the planner read the partial index of all claims for one row.
RENEW = """
UPDATE idem.outbox o
   SET claimed_until = greatest(o.claimed_until,
                                least(statement_timestamp() + make_interval(secs => %(lease)s),
                                      o.claimed_at + make_interval(secs => %(renew_for)s)))
 WHERE o.id = %(id)s AND o.attempt = %(attempt)s
   AND CASE WHEN o.status = 'claimed' AND o.claim_token = %(token)s
            THEN o.claimed_until > statement_timestamp() END
RETURNING extract(epoch FROM o.claimed_until - statement_timestamp())::float8
"""


async def renew(connection: AsyncConnection[Any], row: OutboxRow, operation: OperationSpec) -> float | None:
    """The lease's end on the boot-time clock, after a renewal; None: it is lost.

    The lease reaches no further than `renew_for` from its beginning, by the database's clock.
    """
    now = clock.boottime()
    cursor = await connection.execute(
        RENEW,
        {
            "id": row.id,
            "token": row.token,
            "attempt": row.attempt,
            "lease": operation.lease,
            "renew_for": operation.renew_for,
        },
    )
    record = await cursor.fetchone()
    return None if record is None else now + float(record[0])
