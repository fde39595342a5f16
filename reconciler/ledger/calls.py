"""Which calls of this ledger the objects of a page are about, and which calls must be on the provider's list."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import fields_of, records
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.provider import Item
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outbox.settle.step_columns import REFERENCE_OF_STEP, STATE_AND_OUTCOME, STEP_NAME
from idem.reconciler.ledger.compare import LedgerCall
from idem.reconciler.webhooks.matching import provider_key

# By the key, of any generation; and by the reference, which several calls may have. Of a flow the steps have it, or the
# open row: `step` is the row of such a call. LIMIT and OFFSET in the subqueries keep the planner from joining the whole
# ledger, or walking it in its order.
FIND = f"""
WITH shown AS MATERIALIZED (
    SELECT s.key, s.reference, s.place
      FROM unnest(%(keys)s::uuid[], %(references)s::text[]) WITH ORDINALITY AS s (key, reference, place)
)
SELECT s.place::integer AS place, true AS by_key, k.intent_id, k.step
  FROM shown s CROSS JOIN LATERAL (
       SELECT r.intent_id, CASE WHEN n.plan IS NOT NULL THEN r.outbox_id END AS step
         FROM idem.requests r JOIN idem.intents n ON n.id = ANY (ARRAY[r.intent_id])
        WHERE r.provider = %(provider)s AND r.account = %(account)s AND r.provider_key = s.key
        ORDER BY CASE WHEN n.plan IS NULL THEN n.provider_reference ELSE {REFERENCE_OF_STEP} END
                 IS NOT DISTINCT FROM s.reference DESC, r.outbox_id DESC LIMIT 1) AS k
 UNION ALL
SELECT s.place::integer, false, n.id, NULL
  FROM shown s CROSS JOIN LATERAL (
       SELECT i.id FROM idem.intents i
        WHERE i.provider = %(provider)s AND i.account = %(account)s AND i.provider_reference = s.reference
        LIMIT %(limit)s) AS n
 UNION ALL
SELECT s.place::integer, false, d.intent_id, d.outbox_id
  FROM shown s CROSS JOIN LATERAL (
       SELECT e.intent_id, e.outbox_id FROM idem.steps e
        WHERE e.provider = %(provider)s AND e.account = %(account)s AND e.provider_reference = s.reference
        LIMIT %(limit)s) AS d
 UNION ALL
SELECT s.place::integer, false, o.intent_id, o.id
  FROM shown s CROSS JOIN LATERAL (
       SELECT w.intent_id, w.id FROM idem.outbox w
        WHERE w.step_name IS NOT NULL
          AND w.provider = %(provider)s AND w.account = %(account)s AND w.provider_reference = s.reference
        LIMIT %(limit)s) AS o
"""  # noqa: S608

DESCRIBE = """
SELECT n.id AS intent_id, NULL AS step, false AS partial, n.operation, n.state, n.outcome, n.provider_reference,
       n.object_end, n.result, n.settled_at,
       o.id AS open_row, o.status,
       coalesce(o.status = 'claimed' AND o.claimed_until > statement_timestamp(), false) AS live,
       r.outbox_id, r.method, r.path, r.headers,
       idem.known_moment(coalesce(o.first_sent_at, o.imported_sent_at, r.created_at, n.created_at)) AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at,
       ARRAY(SELECT q.provider_key::text FROM idem.requests q WHERE q.outbox_id = r.outbox_id
              ORDER BY q.generation DESC) AS keys
  FROM unnest(%(intents)s::uuid[]) AS a (id)
 CROSS JOIN LATERAL (SELECT i.* FROM idem.intents i WHERE i.id = a.id LIMIT 1) AS n
  LEFT JOIN LATERAL (SELECT s.outbox_id, s.method, s.path, s.headers, s.created_at
                       FROM (SELECT q.* FROM idem.requests q WHERE q.intent_id = n.id OFFSET 0) AS s
                      ORDER BY s.outbox_id DESC, s.generation DESC LIMIT 1) AS r ON true
  LEFT JOIN LATERAL (SELECT w.id, w.status, w.claimed_until, w.first_sent_at, w.imported_sent_at FROM idem.outbox w
                      WHERE w.intent_id = n.id LIMIT 1) AS o ON true
"""
DESCRIBE_STEPS = f"""
SELECT n.id AS intent_id, coalesce(d.name, o.step_name, {STEP_NAME}) AS step,
       n.operation,
       {STATE_AND_OUTCOME},
       coalesce(d.provider_reference, o.provider_reference) AS provider_reference, d.object_end, d.fields AS result,
       d.ended_at AS settled_at, a.id AS open_row, o.status,
       coalesce(o.status = 'claimed' AND o.claimed_until > statement_timestamp(), false) AS live,
       coalesce(o.status = 'held' AND o.key_burned, false)
       AND (SELECT bool_or(p.resolved_at IS NULL AND p.reason = 'partial')
              FROM idem.dead_letters p WHERE p.intent_id = n.id) IS TRUE AS partial,
       a.id AS outbox_id, r.method, r.path, r.headers,
       idem.known_moment(coalesce(o.first_sent_at, r.created_at, n.created_at)) AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at,
       ARRAY(SELECT q.provider_key::text FROM idem.requests q WHERE q.outbox_id = a.id
              ORDER BY q.generation DESC) AS keys
  FROM unnest(%(rows)s::uuid[]) AS a (id)
  LEFT JOIN LATERAL (SELECT e.* FROM idem.steps e WHERE e.outbox_id = a.id LIMIT 1) AS d ON true
  LEFT JOIN LATERAL (SELECT w.* FROM idem.outbox w WHERE w.id = a.id LIMIT 1) AS o ON true
  LEFT JOIN LATERAL (SELECT q.* FROM idem.requests q WHERE q.outbox_id = a.id
                      ORDER BY q.generation DESC LIMIT 1) AS r ON true
 CROSS JOIN LATERAL (SELECT i.* FROM idem.intents i
                      WHERE i.id = coalesce(d.intent_id, o.intent_id, r.intent_id) LIMIT 1) AS n
"""  # noqa: S608

Called: TypeAlias = tuple[UUID, UUID | None]
"""A call of this ledger: its intent, and of a flow the row of the step."""

MANY = 10
"""Intents that are looked at of those which share one reference."""


@dataclass(frozen=True, slots=True)
class LedgerMatch:
    """What an object is about: `ours` by its key, or by a reference that no other call has; `known`: every call that
    has either."""

    ours: LedgerCall | None
    known: tuple[LedgerCall, ...]


async def find(connection: AsyncConnection[Any], lane: LaneScope, items: Sequence[Item]) -> list[LedgerMatch]:
    """The calls of this account that each object is about."""
    where = {"provider": lane.provider, "account": lane.account, "limit": MANY}
    shown = {"keys": [provider_key(item.key) for item in items], "references": [item.reference for item in items]}
    found = await (await records(connection).execute(FIND, where | shown)).fetchall()
    known = await describe(connection, [(row.intent_id, row.step) for row in found])
    by_key: dict[int, LedgerCall] = {}
    all_of: list[dict[UUID, LedgerCall]] = [{} for _ in items]
    for row in found:
        ours = known.get(row.step or row.intent_id)
        if ours is None:
            continue
        all_of[row.place - 1].setdefault(ours.identity, ours)
        if row.by_key:
            by_key[row.place - 1] = ours
    return [_match(by_key.get(place), tuple(each.values())) for place, each in enumerate(all_of)]


def _match(by_key: LedgerCall | None, known: tuple[LedgerCall, ...]) -> LedgerMatch:
    return LedgerMatch(by_key or (known[0] if len(known) == 1 else None), known)


async def describe(connection: AsyncConnection[Any], calls: Sequence[Called]) -> dict[UUID, LedgerCall]:
    """What this ledger says of these calls, by their `LedgerCall.identity`."""
    cursor, known = records(connection), []
    intents, steps = {intent for intent, step in calls if step is None}, {step for _, step in calls if step is not None}
    if intents:
        known += await (await cursor.execute(DESCRIBE, {"intents": list(intents)})).fetchall()
    if steps:
        known += await (await cursor.execute(DESCRIBE_STEPS, {"rows": list(steps)})).fetchall()
    return {ours.identity: ours for ours in map(_ours, known)}


def _ours(row: Any) -> LedgerCall:
    return LedgerCall(
        **fields_of(row, LedgerCall)
        | {
            # What the caller's own code sends has no frozen request.
            "row_id": row.open_row or row.outbox_id,
            "state": KeyState(row.state),
            "reference": row.provider_reference,
            "result": row.result or {},
            "status": None if row.status is None else OutboxStatus(row.status),
            "method": row.method or "",
            "path": row.path or "",
            "keys": tuple(row.keys),
            "headers": row.headers or {},
        }
    )


# By the time at which it was settled: the object is older than that. One that was accepted before the window may be too
# old for the list, and is asked about like any other that is not on it; so no intent falls between two checks.
ENDED = """
SELECT e.intent, e.step, e.at, e.id
  FROM ((SELECT n.id AS intent, NULL::uuid AS step, n.settled_at AS at, n.id FROM idem.intents n
          WHERE n.provider = %(provider)s AND n.account = %(account)s
            AND n.state = 'completed' AND n.outcome = 'succeeded'
            AND (n.settled_at, n.id) > (%(at)s, %(after)s) AND n.settled_at <= to_timestamp(%(until)s)
          ORDER BY n.settled_at, n.id LIMIT %(limit)s)
         UNION ALL
        (SELECT s.intent_id, s.outbox_id, s.ended_at, s.outbox_id FROM idem.steps s
          WHERE s.provider = %(provider)s AND s.account = %(account)s AND s.outcome = 'succeeded'
            AND (s.ended_at, s.outbox_id) > (%(at)s, %(after)s) AND s.ended_at <= to_timestamp(%(until)s)
          ORDER BY s.ended_at, s.outbox_id LIMIT %(limit)s)) AS e
 ORDER BY e.at, e.id LIMIT %(limit)s
"""


async def ended(
    connection: AsyncConnection[Any], lane: LaneScope, *, at: datetime, after: UUID, until: float, limit: int
) -> tuple[list[Called], tuple[datetime, UUID]]:
    """Up to `limit` calls of a lane that succeeded after a time and until another, in the order of their ends; and the
    `at` and `after` of the next page."""
    where = {
        "provider": lane.provider, "account": lane.account, "at": at, "after": after, "until": until, "limit": limit
    }  # fmt: skip
    rows = await (await connection.execute(ENDED, where)).fetchall()
    return [(intent, step) for intent, step, _, _ in rows], (rows[-1][2], rows[-1][3]) if rows else (at, after)
