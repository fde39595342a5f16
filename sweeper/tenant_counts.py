"""Keeps the counts of tenants: their unexpired keys, and old usage counts.

Rows of `idem.tenant_keys` are locked by tenant and never waited for: the keys of a tenant whose count another session
holds are left to the next pass. Counting anew locks one of them and nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.observe import telemetry

COUNT_AGAIN: Final = 3600.0
"""Seconds after which a tenant's keys are counted anew: what a long transaction made late is in no other count."""

MARK_LAG: Final = 60.0
"""Seconds that the mark stays behind: a key whose transaction lasted longer is counted when all are counted anew."""

UNWANTED: Final = 86400.0
"""Seconds without a question about a tenant's limit, after which its keys are not counted any more."""

USAGE_RETENTION: Final = 30 * 86400.0
"""Seconds for which it is kept what tenants did: long enough to talk about last week."""

LOCK_COUNTS = """
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT i.tenant_id || '' AS tenant_id FROM idem.idempotency_keys i WHERE i.intent_id = ANY (%(intents)s)
), locked AS MATERIALIZED (
    SELECT k.tenant_id FROM idem.tenant_keys k
     WHERE k.tenant_id = ANY (ARRAY(SELECT w.tenant_id FROM wanted w)) ORDER BY k.tenant_id FOR UPDATE SKIP LOCKED
)
SELECT k.tenant_id FROM idem.tenant_keys k
 WHERE k.tenant_id = ANY (ARRAY(SELECT w.tenant_id FROM wanted w))
   AND k.tenant_id <> ALL (ARRAY(SELECT l.tenant_id FROM locked l))
"""


async def hold_counts(connection: AsyncConnection[Any], intents: Sequence[UUID]) -> list[str]:
    """Lock the counts of the tenants of these intents' keys; the tenants whose count another session holds."""
    return [record[0] for record in await (await connection.execute(LOCK_COUNTS, {"intents": intents})).fetchall()]


# What was not counted yet needs nothing taken off: it is counted without.
SUBTRACT = """
UPDATE idem.tenant_keys k SET active = k.active - g.keys
  FROM unnest(%(tenants)s::text[], %(keys)s::bigint[]) AS g (tenant_id, keys)
 WHERE k.tenant_id = ANY (ARRAY[g.tenant_id]) AND k.counted_at IS NOT NULL
"""


async def subtract(connection: AsyncConnection[Any], expired: Mapping[str, int]) -> None:
    """Take expired keys off their tenants' counts, in the transaction that holds these (`hold_counts`).

    A statement of its own, whose snapshot is younger than the locks.
    """
    if expired:
        await connection.execute(SUBTRACT, {"tenants": list(expired), "keys": list(expired.values())})


DUE_MARKS = """
SELECT k.tenant_id FROM idem.tenant_keys k
 WHERE k.counted_at IS NOT NULL
   AND k.counted_to < idem.first_uuid7(statement_timestamp() - make_interval(secs => 2 * %(lag)s))
 ORDER BY k.tenant_id LIMIT %(batch)s FOR UPDATE SKIP LOCKED
"""
MOVE_MARKS = """
WITH mark AS MATERIALIZED (SELECT idem.first_uuid7(statement_timestamp() - make_interval(secs => %(lag)s)) AS at)
UPDATE idem.tenant_keys k
   SET active = k.active + (SELECT count(*) FROM idem.intents i
                             WHERE i.tenant_id = k.tenant_id AND i.id > k.counted_to AND i.id <= m.at),
       counted_to = m.at
  FROM mark m
 WHERE k.tenant_id = ANY (%(tenants)s) AND k.counted_to < m.at
"""


async def move_marks(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Count what was made since the last time into up to `batch` tenants' counts; how many tenants that were."""
    async with connection.transaction():
        due = await (await connection.execute(DUE_MARKS, {"lag": MARK_LAG, "batch": batch})).fetchall()
        if due:
            await connection.execute(MOVE_MARKS, {"lag": MARK_LAG, "tenants": [record[0] for record in due]})
    return len(due)


# Keys after the mark are counted by their intents, those that have expired already too.
DUE_COUNT = """
SELECT k.tenant_id FROM idem.tenant_keys k
 WHERE k.counted_at IS NULL OR k.counted_at < statement_timestamp() - make_interval(secs => %(age)s)
 ORDER BY k.counted_at NULLS FIRST, k.tenant_id LIMIT 1 FOR UPDATE SKIP LOCKED
"""
COUNT_KEYS = """
WITH mark AS MATERIALIZED (SELECT idem.first_uuid7(statement_timestamp() - make_interval(secs => %(lag)s)) AS at)
UPDATE idem.tenant_keys k
   SET active = (SELECT count(*) FILTER (WHERE i.state <> 'expired' AND i.intent_id <= m.at)
                      - count(*) FILTER (WHERE i.state = 'expired' AND i.intent_id > m.at)
                   FROM idem.idempotency_keys i WHERE i.tenant_id = k.tenant_id),
       counted_to = m.at, counted_at = statement_timestamp()
  FROM mark m
 WHERE k.tenant_id = %(tenant)s
"""


async def count_keys(connection: AsyncConnection[Any]) -> bool:
    """Count the keys of the tenant whose count is the oldest, if it is due; whether there was one.

    Its row is locked first: what others take off meanwhile waits, and is taken off the new count.
    """
    async with connection.transaction():
        due = await (await connection.execute(DUE_COUNT, {"age": COUNT_AGAIN})).fetchone()
        if due is not None:
            await connection.execute(COUNT_KEYS, {"lag": MARK_LAG, "tenant": due[0]})
    return due is not None


FORGET_COUNTS = """
DELETE FROM idem.tenant_keys k
 WHERE k.tenant_id = ANY (ARRAY(
           SELECT o.tenant_id FROM idem.tenant_keys o
            WHERE o.requested_at < statement_timestamp() - make_interval(secs => %(age)s)
            ORDER BY o.tenant_id LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
"""


async def forget_counts(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Delete up to `batch` counts that are past their retention; returns how many."""
    return (await connection.execute(FORGET_COUNTS, {"age": UNWANTED, "batch": batch})).rowcount


# In the order of tenants, like the counts of the API. What another sweeper holds is its to add.
ADD_DECISIONS = """
WITH counted AS MATERIALIZED (
    DELETE FROM idem.decisions_to_count d
     WHERE d.id = ANY (ARRAY(
               SELECT o.id FROM idem.decisions_to_count o ORDER BY o.id LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
    RETURNING d.tenant_id, d.operation, d.decision, d.at
), added AS (
    INSERT INTO idem.tenant_usage AS u (tenant_id, hour, requests, created, replayed, mismatch, expired_reuse)
    SELECT t.tenant_id, date_trunc('hour', t.at, 'UTC'), count(*), count(*) FILTER (WHERE t.decision = 'accepted'),
           count(*) FILTER (WHERE t.decision = 'replay'), count(*) FILTER (WHERE t.decision = 'mismatch'),
           count(*) FILTER (WHERE t.decision = 'expired')
      FROM counted t GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (tenant_id, hour) DO UPDATE
       SET requests      = u.requests + excluded.requests,
           created       = u.created + excluded.created,
           replayed      = u.replayed + excluded.replayed,
           mismatch      = u.mismatch + excluded.mismatch,
           expired_reuse = u.expired_reuse + excluded.expired_reuse
)
SELECT t.operation, t.decision, count(*) FROM counted t GROUP BY 1, 2
"""


async def add_decisions(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Add up to `batch` decisions of the library and of SQL to what their tenants did; how many. Counted after the
    commit, so that no decision is counted twice."""
    async with connection.transaction():
        found = await (await connection.execute(ADD_DECISIONS, {"batch": batch})).fetchall()
    for operation, decision, number in found:
        telemetry.decisions_counted(operation, decision, number)
    return sum(number for _, _, number in found)


DELETE_USAGE = """
DELETE FROM idem.tenant_usage u
 WHERE u.ctid = ANY (ARRAY(
           SELECT o.ctid FROM idem.tenant_usage o
            WHERE o.hour < statement_timestamp() - make_interval(secs => %(age)s)
            ORDER BY o.hour LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
"""


async def delete_usage(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Delete up to `batch` hours of tenants that are past `USAGE_RETENTION`; how many."""
    return (await connection.execute(DELETE_USAGE, {"age": USAGE_RETENTION, "batch": batch})).rowcount
