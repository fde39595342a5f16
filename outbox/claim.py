"""The claim: a worker's exclusive right to make a call, under a token that it made before the statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from idem.outbox.change import Row
from idem.outbox.contract import FrozenRequest
from idem.outbox.database import AWAY, Database, records
from idem.outbox.states import KeyState, OutboxStatus

FORMAT_VERSIONS = (1,)
"""The versions of a frozen request that this code can send; rows of others are left to a worker that knows them."""


@dataclass(frozen=True, slots=True)
class LaneName:
    """What a claim is for. A row of another account, origin or environment cannot be claimed through it."""

    provider: str
    account: str
    origin: str
    environment: str
    operations: tuple[str, ...]
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed row with its frozen request. `lease_ends` is on the boot-time clock of this machine."""

    row: Row
    request: FrozenRequest
    lease_ends: float
    marks_start: bool
    traceparent: str | None


# The subquery on proofs gives one value, so that no plan joins the queue with all proofs and sorts it again.
CLAIM = """
WITH claimed AS (
    UPDATE idem.outbox o
       SET status        = 'claimed',
           status_since  = statement_timestamp(),
           attempt       = o.attempt + 1,
           claim_token   = %(token)s,
           claimed_by    = %(holder)s,
           claimed_at    = statement_timestamp(),
           claimed_until = statement_timestamp() + make_interval(secs => %(lease)s),
           first_sent_at = coalesce(o.first_sent_at, statement_timestamp()),
           started_at    = NULL
     WHERE o.id = ANY (ARRAY(
               SELECT c.id FROM idem.outbox c
                WHERE c.status = 'pending'
                  AND c.provider = %(provider)s AND c.account = %(account)s
                  AND c.available_at <= statement_timestamp()
                  AND c.start_before > statement_timestamp()
                  AND c.origin = %(origin)s
                  AND c.operation = ANY (%(operations)s)
                  AND c.format_version = ANY (%(formats)s)
                  AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id LIMIT 1) IS NULL
                  AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)
                  AND NOT EXISTS (SELECT FROM idem.lanes l
                                   WHERE l.provider = %(provider)s AND l.account = %(account)s AND l.paused)
                ORDER BY c.available_at, c.id
                LIMIT CASE WHEN %(concurrency)s::integer IS NULL THEN %(limit)s
                           ELSE greatest(0, least(%(limit)s, %(concurrency)s::integer - (
                               SELECT count(*) FROM idem.outbox b
                                WHERE b.provider = %(provider)s AND b.account = %(account)s
                                  AND b.claim_token IS NOT NULL)::integer)) END
                  FOR UPDATE OF c SKIP LOCKED))
    RETURNING o.id, o.intent_id, o.operation, o.attempt, o.provider_key, o.step, o.generation, o.redrives, o.sweeps,
              o.misses, o.marks_start, o.traceparent, o.start_before
)
SELECT c.id, c.intent_id, c.operation, c.attempt, c.provider_key::text AS provider_key, c.step, c.redrives, c.sweeps,
       c.misses, c.marks_start, c.traceparent,
       extract(epoch FROM c.start_before - statement_timestamp())::float8 AS start_left,
       r.method, r.path, r.headers, r.body
  FROM claimed c JOIN idem.requests r ON r.outbox_id = c.id AND r.generation = c.generation
"""


async def claim(
    connection: AsyncConnection[Any], lane: LaneName, *, token: UUID, holder: str, lease: float, limit: int, now: float
) -> list[Claimed]:
    """Claim up to `limit` due rows of a lane for `lease` seconds.

    `now` is the boot-time clock read before the statement was sent, so that this process never believes in its
    lease for longer than the database does.
    """
    cursor = records(connection)
    await cursor.execute(
        CLAIM,
        {
            "token": token,
            "holder": holder,
            "lease": lease,
            "limit": limit,
            "provider": lane.provider,
            "account": lane.account,
            "origin": lane.origin,
            "operations": list(lane.operations),
            "formats": list(FORMAT_VERSIONS),
            "environment": lane.environment,
            "concurrency": lane.concurrency,
        },
        prepare=True,
    )
    return [
        Claimed(
            row=Row(
                id=record.id,
                intent_id=record.intent_id,
                operation=record.operation,
                provider=lane.provider,
                account=lane.account,
                status=OutboxStatus.CLAIMED,
                state=KeyState.IN_PROGRESS,
                token=token,
                attempt=record.attempt,
                provider_key=record.provider_key,
                live=True,
                step=record.step,
                redrives=record.redrives,
                sweeps=record.sweeps,
                misses=record.misses,
                start_left=record.start_left,
                marks_start=record.marks_start,
                holder=holder,
            ),
            request=FrozenRequest(record.method, record.path, record.headers, bytes(record.body)),
            lease_ends=now + lease,
            marks_start=record.marks_start,
            traceparent=record.traceparent,
        )
        for record in await cursor.fetchall()
    ]


# A CASE, because a condition on token or status lets the planner read the partial index of all claims for one row.
MARK_START = """
UPDATE idem.outbox SET started_at = statement_timestamp()
 WHERE id = %(id)s AND attempt = %(attempt)s
   AND CASE WHEN status = 'claimed' AND claim_token = %(token)s
            THEN claimed_until > statement_timestamp() + make_interval(secs => %(needed)s) END
RETURNING id
"""


async def mark_start(connection: AsyncConnection[Any], row: Row, *, needed: float) -> bool:
    """Commit that this claim is about to send, if its lease still has `needed` seconds.

    For providers that know no keys: a swept claim without this mark is proven not sent.
    """
    cursor = await connection.execute(
        MARK_START, {"id": row.id, "token": row.token, "attempt": row.attempt, "needed": needed}
    )
    return await cursor.fetchone() is not None


OWN_CLAIMS = """
SELECT o.id, o.intent_id, o.operation, o.attempt, o.provider_key::text AS provider_key, o.step, o.sweeps, o.misses,
       o.inline, extract(epoch FROM o.start_before - statement_timestamp())::float8 AS start_left
  FROM idem.outbox o WHERE o.provider = %(provider)s AND o.account = %(account)s AND o.claim_token = %(token)s
"""


async def recover_lost_claim(
    database: Database, lane: LaneName, token: UUID, *, backend: int | None, patience: float
) -> Sequence[Row]:
    """The rows of a claim whose answer was lost: nothing of them was sent, so they can be given back.

    The lost statement may still commit: the search is repeated until its backend is gone, or until `patience`
    seconds (the statement timeout) have passed.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            async with database.connection() as connection:
                gone = backend is not None and not await _lives(connection, backend)
                cursor = records(connection)
                own = await (
                    await cursor.execute(
                        OWN_CLAIMS, {"token": token, "provider": lane.provider, "account": lane.account}
                    )
                ).fetchall()
        except AWAY:
            gone, own = False, []
        if own or gone or loop.time() > until:
            return [
                Row(
                    id=r.id, intent_id=r.intent_id, operation=r.operation, provider=lane.provider,
                    account=lane.account, status=OutboxStatus.CLAIMED, state=KeyState.IN_PROGRESS, token=token,
                    attempt=r.attempt, provider_key=r.provider_key, live=True, step=r.step, sweeps=r.sweeps,
                    misses=r.misses, start_left=r.start_left, inline=r.inline,
                )
                for r in own
            ]  # fmt: skip
        await asyncio.sleep(0.5)


BACKEND_LIVES = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %(pid)s)"


async def _lives(connection: AsyncConnection[Any], backend: int) -> bool:
    if connection.info.backend_pid == backend:
        return False
    record = await (await connection.execute(BACKEND_LIVES, {"pid": backend})).fetchone()
    return bool(record and record[0])


def new_token() -> UUID:
    """A claim token, made before the statement that uses it."""
    return uuid4()
