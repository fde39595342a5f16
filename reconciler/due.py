"""Which rows to ask about: taken like a claim, under a token and a lease; the status stays what it is.

A take that sends something that can act is an attempt of its own. A take whose holder died is simply taken by the
next one, with its end in evidence and, where the provider knows keys, the quiet time raised: it may have been a replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.claim import FORMAT_VERSIONS, LaneName
from idem.outbox.contract import Contract, FrozenRequest
from idem.outbox.database import records
from idem.outbox.states import OutboxStatus


@dataclass(frozen=True, slots=True)
class Taken:
    """A row that this process may ask about. `replay`: the send of its frozen request is an attempt, and allowed.

    `request` is None for what was never rendered, which no replay can be made of (`idem.accept` in SQL, then Recovery).
    """

    id: UUID
    intent_id: UUID
    operation: str
    token: UUID
    attempt: int
    status: OutboxStatus
    provider_key: str
    reference: str | None
    replay: bool
    request: FrozenRequest | None
    lease_ends: float


TAKE = """
WITH picked AS MATERIALIZED (
    SELECT c.id, c.intent_id, c.step, c.attempt, c.status, c.claim_token, c.claimed_by, c.claimed_at, c.claimed_until
      FROM idem.outbox c
     WHERE c.status IN ('unknown', 'awaiting')
       AND c.provider = %(provider)s AND c.account = %(account)s
       AND c.available_at <= statement_timestamp()
       AND (c.claim_token IS NULL OR c.claimed_until <= statement_timestamp())
       AND c.origin = %(origin)s
       AND c.operation = ANY (%(operations)s)
       AND c.format_version = ANY (%(formats)s)
       AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id LIMIT 1) IS NULL
       AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)
       AND NOT EXISTS (SELECT FROM idem.lanes l
                        WHERE l.provider = %(provider)s AND l.account = %(account)s AND l.paused)
     ORDER BY c.available_at, c.id
     LIMIT %(limit)s
       FOR UPDATE OF c SKIP LOCKED
), expired AS (
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, from_status, to_status,
                               holder, claimed_at, claimed_until)
    SELECT p.intent_id, p.id, p.step, p.attempt, p.claim_token, 'reconciler', 'take_expired', p.status, p.status,
           p.claimed_by, p.claimed_at, p.claimed_until
      FROM picked p WHERE p.claim_token IS NOT NULL
        ON CONFLICT DO NOTHING
), taken AS (
    UPDATE idem.outbox o
       SET claim_token   = %(token)s,
           claimed_by    = %(holder)s,
           claimed_at    = statement_timestamp(),
           claimed_until = statement_timestamp() + make_interval(secs => %(lease)s),
           attempt       = o.attempt + CASE
               WHEN o.status = 'unknown' AND NOT o.inline AND %(replays)s
                AND (SELECT r.step FROM idem.requests r
                      WHERE r.outbox_id = o.id AND r.generation = o.generation) IS NOT NULL
                AND o.first_sent_at > statement_timestamp()
                                      - make_interval(secs => least(o.replay_window, %(window)s))
               THEN 1 ELSE 0 END,
           quiet_after   = CASE WHEN o.claim_token IS NULL OR o.replay_window = 0 THEN o.quiet_after
                                ELSE greatest(o.quiet_after, o.claimed_until + make_interval(secs => %(quiet)s)) END
     WHERE o.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING o.id, o.intent_id, o.operation, o.attempt, o.status, o.provider_key, o.provider_reference, o.generation,
              o.status = 'unknown' AND NOT o.inline AND %(replays)s
              AND o.first_sent_at > statement_timestamp()
                                    - make_interval(secs => least(o.replay_window, %(window)s)) AS replay
)
SELECT t.id, t.intent_id, t.operation, t.attempt, t.status, t.provider_key::text AS provider_key,
       t.provider_reference AS reference, coalesce(t.replay, false) AND r.outbox_id IS NOT NULL AS replay,
       r.method, r.path, r.headers, r.body
  FROM taken t LEFT JOIN idem.requests r ON r.outbox_id = t.id AND r.generation = t.generation
"""


async def take(
    connection: AsyncConnection[Any],
    lane: LaneName,
    contract: Contract,
    *,
    token: UUID,
    holder: str,
    lease: float,
    limit: int,
    now: float,
) -> list[Taken]:
    """Take up to `limit` due rows of a lane for `lease` seconds, the longest due first.

    The retention guard stands in the statement: a replay is allowed only while the provider is sure to remember the
    key, by what it promised at accept and by what it promises now, less the margin (hazard 7). `now` is the
    boot-time clock read before the statement was sent.
    """
    cursor = records(connection)
    await cursor.execute(
        TAKE,
        {
            "provider": lane.provider,
            "account": lane.account,
            "origin": lane.origin,
            "operations": list(lane.operations),
            "formats": list(FORMAT_VERSIONS),
            "environment": lane.environment,
            "limit": limit,
            "token": token,
            "holder": holder,
            "lease": lease,
            "replays": contract.replays,
            "window": contract.replay_window,
            "quiet": contract.flight_limit + contract.pause_allowance,
        },
    )
    return [
        Taken(
            id=r.id,
            intent_id=r.intent_id,
            operation=r.operation,
            token=token,
            attempt=r.attempt,
            status=OutboxStatus(r.status),
            provider_key=r.provider_key,
            reference=r.reference,
            replay=r.replay,
            request=None if r.method is None else FrozenRequest(r.method, r.path, r.headers, bytes(r.body)),
            lease_ends=now + lease,
        )
        for r in await cursor.fetchall()
    ]


# A subquery that gives one value, because a join would read the ledger whole.
HASTEN_LANE = """
UPDATE idem.outbox o SET available_at = statement_timestamp()
 WHERE o.status IN ('unknown', 'awaiting') AND o.provider = %(provider)s AND o.account = %(account)s
   AND o.available_at > statement_timestamp() AND o.misses > 0
"""


async def hasten_lane(connection: AsyncConnection[Any], lane: LaneName) -> int:
    """Make every row due that could not be asked about while the provider was away; how many."""
    parameters = {"provider": lane.provider, "account": lane.account}
    return (await connection.execute(HASTEN_LANE, parameters)).rowcount


HASTEN = """
UPDATE idem.outbox o SET available_at = statement_timestamp()
 WHERE o.status IN ('unknown', 'awaiting') AND o.available_at > statement_timestamp()
   AND (%(since)s::timestamptz IS NULL
        OR (SELECT n.created_at FROM idem.intents n WHERE n.id = o.intent_id) >= %(since)s)
RETURNING o.id
"""


async def hasten(connection: AsyncConnection[Any], *, since: datetime | None) -> int:
    """Make every unknown and awaiting row due now (of intents since a time, if given); how many."""
    return len(await (await connection.execute(HASTEN, {"since": since})).fetchall())
