"""Whether there is anything for the passes that are made each second and each five: one statement for all of them."""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.settle.clock_ahead import NEWEST

# Each part goes by the index that its pass goes by, and reads one row at most. In its order: a plan for "is there one"
# may read everything that waits.
DUE_PASSES = f"""
SELECT (SELECT c.id FROM idem.outbox c
         WHERE c.status = 'claimed' AND c.claimed_until <= statement_timestamp()
         ORDER BY c.claimed_until, c.id LIMIT 1) IS NOT NULL AS leases,
       (SELECT c.id FROM idem.outbox c
         WHERE '' || c.status IN ('approval', 'pending', 'waiting', 'unfrozen')
           AND c.start_before <= statement_timestamp()
         ORDER BY c.start_before, c.id LIMIT 1) IS NOT NULL AS queue,
       (SELECT o.id FROM idem.outbox o WHERE o.status = 'waiting' ORDER BY o.status_since LIMIT 1) IS NOT NULL
       AS "order",
       EXISTS (SELECT FROM idem.doubts)
       OR (SELECT c.id FROM idem.outbox c
            WHERE c.doubted_since IS NOT NULL
              AND c.status IN ('approval', 'pending', 'waiting', 'unfrozen', 'held')
            ORDER BY c.doubted_since, c.id LIMIT 1) IS NOT NULL
       OR (SELECT o.id FROM idem.outbox o WHERE idem.is_ahead({NEWEST}) ORDER BY {NEWEST}, o.id LIMIT 1) IS NOT NULL
       AS doubted,
       (SELECT c.id FROM idem.outbox c WHERE c.redrive_at <= statement_timestamp()
         ORDER BY c.redrive_at, c.id LIMIT 1) IS NOT NULL AS redrives
"""  # noqa: S608


async def due_passes(connection: AsyncConnection[Any]) -> frozenset[str]:
    """The passes that may find something, by their names."""
    found = await (await records(connection).execute(DUE_PASSES)).fetchone()
    assert found is not None
    return frozenset(name for name, is_there in found._asdict().items() if is_there)
