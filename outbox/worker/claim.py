"""The claim: a worker's exclusive right to make a call, under a token that it made before the statement."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from idem.outbox.database.memory import WENT_BACK
from idem.outbox.database.pool import AWAY, REFUSED, Database, is_true, records
from idem.outbox.database.pooler import server_of
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outbox_row import OutboxRow, claimed_row
from idem.outbox.settle.doubted_rows import C_IS_LISTED, O_IS_LISTED
from idem.outbox.settle.replay_window import MAY_BE_SENT, MEMORY_BEGINS, MEMORY_LEFT, SENT_AS
from idem.outbox.settle.step_columns import CALL, step_columns
from idem.outbox.worker.exact_limits import takes_turns, with_requests
from idem.outbox.worker.fairness import LAST_SERVED, WIDTH, TenantRound, round_of_tenants

FORMAT_VERSIONS = (1,)
"""The versions of a frozen request that this code can send; rows of others are left to a worker that knows them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A row that this process may send, with its frozen request.

    `lease_ends` and `send_by` are on the boot-time clock of this machine. `send_by`: until when a row that lost commits
    may have sent may leave; without such a doubt at any time. `sent_as`: as whom it is sent; `kept`: as whom it was
    sent before, which may count still.
    """

    row: OutboxRow
    request: FrozenRequest
    lease_ends: float
    send_by: float
    traceparent: str | None
    sent_as: int | None = None
    kept: bool = False


# The subquery on proofs gives one value, so that no plan joins the queue with all proofs and sorts it again. The
# planner expects a bare IS NULL to hold once in 200 rows, hence coalesce. `IS TRUE` stops the planner from using
# `outbox_too_old`.
CLAIMABLE = f"""
                  c.provider = %(provider)s AND c.account = %(account)s AND c.available_at <= statement_timestamp()
              AND (c.start_before > statement_timestamp()) IS TRUE
              AND c.origin = %(origin)s
              AND {CALL} = ANY (%(calls)s)
              AND c.format_version = ANY (%(formats)s)
              AND {MAY_BE_SENT}
              AND coalesce((SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id LIMIT 1) IS NULL, false)
              AND coalesce(NOT {C_IS_LISTED}, false)"""  # noqa: S608

_ROUND = round_of_tenants(
    "pending",
    lane=" AND o.provider = %(provider)s AND o.account = %(account)s",
    held=" AND t.tenant_id NOT IN (SELECT b.tenant_id FROM busy b)",
    room="(SELECT n FROM room)",
    claimable=CLAIMABLE,
    columns="c.id",
    order="c.available_at, c.id",
    rest="CASE WHEN %(spare)s THEN 0 ELSE (SELECT n FROM room) - (SELECT count(*) FROM in_turn) END",
)
# `room` is how many rows may be claimed; 0 in a paused lane, of which no row is read then. `keep` of the fleet's calls
# are left free; a claim for what was kept (`spare`) is for `visited` tenants alone that hold no call: none of this
# process, and none of the fleet where that is limited.
CLAIM = f"""
WITH RECURSIVE room AS MATERIALIZED (
    SELECT CASE WHEN {WENT_BACK} THEN 0
                WHEN NOT EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)
                  OR EXISTS (SELECT FROM idem.lanes l
                              WHERE l.provider = %(provider)s AND l.account IN (%(account)s, '') AND l.paused) THEN 0
                WHEN %(exact)s
                THEN greatest(0, idem.lane_capacity_locked(%(provider)s, %(account)s, %(concurrency)s::integer,
                                                %(asking)s::integer, false, %(limit)s::integer + %(keep)s::integer)
                                 - %(keep)s::integer)
                ELSE greatest(0, idem.lane_capacity(%(provider)s, %(account)s, %(concurrency)s::integer,
                                                %(asking)s::integer, false, %(limit)s::integer + %(keep)s::integer)
                                 - %(keep)s::integer) END AS n
), busy AS MATERIALIZED (
    SELECT o.tenant_id FROM idem.outbox o
     WHERE %(spare)s AND o.provider = %(provider)s AND o.account = %(account)s AND o.claim_token IS NOT NULL
       AND o.claimed_until > statement_timestamp() AND o.status = 'claimed'
       AND (o.claimed_by = %(holder)s OR %(concurrency)s::integer IS NOT NULL)
), {_ROUND}, claimed AS (
    UPDATE idem.outbox o
       SET status        = 'claimed',
           status_since  = statement_timestamp(),
           attempt       = o.attempt + 1,
           claim_token   = %(token)s,
           claimed_by    = %(holder)s,
           claimed_at    = statement_timestamp(),
           claimed_until = statement_timestamp() + make_interval(secs => %(lease)s),
           first_sent_at = {MEMORY_BEGINS},
           sent_as       = {SENT_AS},
           started_at    = NULL
     WHERE o.id = ANY (ARRAY(SELECT id FROM in_turn UNION ALL SELECT id FROM longest))
    RETURNING o.id, o.intent_id, o.operation, o.attempt, o.provider_key, o.step, o.generation, o.redrives, o.sweeps,
              o.failures, o.marks_start, o.traceparent, o.start_before, o.tenant_id, o.doubted_since, o.sent_as,
              o.step_name,
              {MEMORY_LEFT} AS memory_left
)
SELECT a.room,
       {LAST_SERVED}, c.*
  FROM round a LEFT JOIN (
       SELECT c.id, c.intent_id, c.operation, c.attempt, c.provider_key::text AS provider_key, c.step, c.redrives,
              c.sweeps, c.failures, c.marks_start, c.traceparent, c.tenant_id,
              extract(epoch FROM c.start_before - statement_timestamp())::float8 AS start_left,
              idem.memory_age(NULL, c.doubted_since) AS doubted_for,
              c.memory_left, c.sent_as,
              {step_columns("c")},
              r.method, r.path, CASE WHEN NOT %(exact)s THEN r.headers END AS headers,
              CASE WHEN NOT %(exact)s THEN r.body END AS body
         FROM claimed c JOIN idem.requests r ON r.outbox_id = c.id AND r.generation = c.generation) c ON true
"""  # noqa: S608


def lane_parameters(lane: LaneScope) -> dict[str, Any]:
    """What the statements that claim rows of a lane are told of it."""
    return {
        "provider": lane.provider,
        "account": lane.account,
        "origin": lane.origin,
        "calls": list(lane.calls),
        "formats": list(FORMAT_VERSIONS),
        "environment": lane.environment,
        "window": lane.memory,
        "concurrency": lane.concurrency,
        "asking": lane.asking,
        "exact": takes_turns(lane),
    }


async def claim(
    connection: AsyncConnection[Any],
    lane: LaneScope,
    *,
    token: UUID,
    holder: str,
    lease: float,
    limit: int,
    now: float,
    tenants: TenantRound | None = None,
    keep: int = 0,
    spare: bool = False,
    beats: int = 0,
    table: int = 0,
    sent_as: int | None = None,
) -> list[Claim]:
    """Claim up to `limit` due rows of a lane for `lease` seconds.

    `keep`: calls of the fleet to leave free where it is limited. `spare`: only rows of tenants that hold no call.

    `now` is the boot-time clock read before the statement was sent, so that this process never believes in its
    lease for longer than the database does. `tenants` is moved on; without it, what has waited longest comes first.
    `beats`: heartbeats of this `holder` that the database has committed: where it has forgotten one it went back to
    an earlier moment, and nothing is claimed until that is noticed. `table`: the outbox as
    of the last of them (`Beat.table`). `sent_as`: as whom this process sends.
    """
    tenants = tenants or TenantRound()
    parameters = {
        "token": token,
        "holder": holder,
        "beats": beats,
        "table": table,
        "lease": lease,
        "limit": limit,
        **lane_parameters(lane),
        "turns": WIDTH if spare else tenants.width,
        "keep": keep,
        "spare": spare,
        "after": tenants.after,
        "sent_as": sent_as,
    }
    cursor = records(connection)
    await cursor.execute(CLAIM, parameters, prepare=True)
    found = await cursor.fetchall()
    room, after = found[0].room, found[0].after
    if takes_turns(lane):
        found = await with_requests(connection, token, found)
    claimed = [
        Claim(
            row=claimed_row(
                record, token=token, holder=holder, provider=lane.provider, account=lane.account
            ),
            request=FrozenRequest(record.method, record.path, record.headers, bytes(record.body)),
            lease_ends=now + lease,
            send_by=math.inf if record.memory_left is None else now + record.memory_left,
            traceparent=record.traceparent,
            sent_as=record.sent_as,
            kept=record.sent_as != sent_as,
        )
        for record in found
        if record.id is not None
    ]  # fmt: skip
    whose = [record.tenant_id for record in found if record.id is not None]
    if spare:
        tenants.claimed_spare(whose, now, room, after)
    else:
        tenants.claimed(whose, now, room, after)
    return claimed


# A CASE, because a condition on token or status lets the planner read the partial index of all claims for one row.
MARK_START = f"""
UPDATE idem.outbox o SET started_at = statement_timestamp()
 WHERE id = %(id)s AND attempt = %(attempt)s
   AND CASE WHEN status = 'claimed' AND claim_token = %(token)s
            THEN claimed_until > statement_timestamp() + make_interval(secs => %(needed)s) END
   AND NOT {O_IS_LISTED}
RETURNING id
"""  # noqa: S608


async def mark_start(connection: AsyncConnection[Any], row: OutboxRow, *, needed: float) -> bool:
    """Commit that this claim is about to send, if its lease still has `needed` seconds.

    For providers that know no keys: a swept claim without this mark is proven not sent.
    """
    cursor = await connection.execute(
        MARK_START, {"id": row.id, "token": row.token, "attempt": row.attempt, "needed": needed}
    )
    return await cursor.fetchone() is not None


OWN_CLAIMS = f"""
SELECT o.id, o.intent_id, o.operation, o.attempt, o.provider_key::text AS provider_key, o.step, o.sweeps, o.failures,
       o.inline, {step_columns("o")},
       extract(epoch FROM o.start_before - statement_timestamp())::float8 AS start_left
  FROM idem.outbox o WHERE o.provider = %(provider)s AND o.account = %(account)s AND o.claim_token = %(token)s
"""  # noqa: S608


async def recover_lost_claim(
    database: Database, provider: str, account: str, token: UUID, *, backend: int | None, patience: float
) -> Sequence[OutboxRow]:
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
                wanted = {"token": token, "provider": provider, "account": account}
                own = await (await cursor.execute(OWN_CLAIMS, wanted)).fetchall()
        except (*AWAY, *REFUSED):
            gone, own = False, []
        if own or gone or loop.time() > until:
            return [claimed_row(r, token=token, provider=provider, account=account) for r in own]
        await asyncio.sleep(0.5)


BACKEND_LIVES = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %(pid)s)"


async def _lives(connection: AsyncConnection[Any], backend: int) -> bool:
    if server_of(connection) == backend:
        return False
    return await is_true(connection, BACKEND_LIVES, {"pid": backend})


def new_token() -> UUID:
    """A claim token, made before the statement that uses it."""
    return uuid4()
