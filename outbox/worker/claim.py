"""The claim: a worker's exclusive right to make a call, under a token that it made before the statement."""

import math
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from idem.outbox.database.memory import WENT_BACK
from idem.outbox.database.pool import records
from idem.outbox.database.short import short
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outbox_row import OutboxRow, claimed_row
from idem.outbox.settle.doubted_rows import C_IS_LISTED, O_IS_LISTED
from idem.outbox.settle.replay_window import MAY_BE_SENT, MEMORY_BEGINS, MEMORY_LEFT, SENT_AS
from idem.outbox.settle.step_columns import CALL, step_columns
from idem.outbox.values import clock
from idem.outbox.worker.exact_limits import takes_turns, with_requests
from idem.outbox.worker.fairness import LAST_SERVED, SHARERS, WIDTH, TenantRound, round_of_tenants

FORMAT_VERSIONS = (1,)
"""The versions of a frozen request that this code can send; rows of others are left to a worker that knows them."""


@dataclass(slots=True)
class Claim:
    """A row that this process may send, with its frozen request. Every call makes one, hence not frozen.

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

# How many rows may be claimed: 0 in a paused lane, of which no row is read then. `keep` of the fleet's calls stay free.
_ROOM = f"""
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
                                 - %(keep)s::integer) END AS n"""  # noqa: S608

# What a claim writes into a row `o`, and what it returns of it.
_TAKE = f"""
       SET status        = 'claimed',
           status_since  = statement_timestamp(),
           attempt       = o.attempt + 1,
           claim_token   = %(token)s,
           claimed_by    = %(holder)s,
           claimed_at    = statement_timestamp(),
           claimed_until = statement_timestamp() + make_interval(secs => %(lease)s),
           first_sent_at = {MEMORY_BEGINS},
           sent_as       = {SENT_AS},
           started_at    = CASE WHEN %(starts)s AND o.marks_start
                                     AND {SENT_AS} IS NOT DISTINCT FROM %(sent_as)s::bigint
                                THEN statement_timestamp() END"""
_TAKEN = f"""o.id, o.intent_id, o.operation, o.attempt, o.provider_key, o.step, o.generation, o.redrives, o.sweeps,
              o.failures, o.marks_start, o.started_at IS NOT NULL AS started, o.traceparent, o.start_before,
              o.tenant_id, o.doubted_since, o.sent_as,
              o.step_name, o.available_at,
              {MEMORY_LEFT} AS memory_left"""
# Of a row `c` that was claimed, with its request `r`.
_ROW = f"""c.id, c.intent_id, c.operation, c.attempt, c.provider_key::text AS provider_key, c.step, c.redrives,
              c.sweeps, c.failures, c.marks_start, c.started, c.traceparent, c.tenant_id, c.available_at,
              extract(epoch FROM c.start_before - statement_timestamp())::float8 AS start_left,
              idem.memory_age(NULL, c.doubted_since) AS doubted_for,
              c.memory_left, c.sent_as,
              {step_columns("c")},
              r.method, r.path"""

# A claim of what has waited longest, of any tenant: the queue is read from a place on (`QueuePosition`), in its order.
CLAIM_NEXT = short(f"""
WITH room AS MATERIALIZED ({_ROOM}
), claimed AS (
    UPDATE idem.outbox o {_TAKE}
     WHERE o.id = ANY (ARRAY(
               SELECT c.id FROM idem.outbox c
                WHERE {CLAIMABLE}
                  AND c.status = 'pending'
                  AND (c.available_at, c.id) >= (%(from_time)s, %(from_id)s)
                ORDER BY c.available_at, c.id
                LIMIT (SELECT n FROM room)
                  FOR UPDATE OF c SKIP LOCKED))
    RETURNING {_TAKEN}
)
SELECT a.n AS room, NULL AS after, NULL AS sharers, statement_timestamp() AS at, c.*
  FROM room a LEFT JOIN (
       SELECT {_ROW}, r.headers, r.body
         FROM claimed c CROSS JOIN LATERAL (
              SELECT q.* FROM idem.requests q
               WHERE q.outbox_id = c.id AND q.generation = c.generation LIMIT 1) AS r) c ON true
""")  # noqa: S608

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
# A claim that goes round the tenants. One for what was kept (`spare`) is for `visited` tenants alone that hold no call:
# none of this process, and none of the fleet where that is limited.
CLAIM = f"""
WITH RECURSIVE room AS MATERIALIZED ({_ROOM}
), busy AS MATERIALIZED (
    SELECT o.tenant_id FROM idem.outbox o
     WHERE %(spare)s AND o.provider = %(provider)s AND o.account = %(account)s AND o.claim_token IS NOT NULL
       AND o.claimed_until > statement_timestamp() AND o.status = 'claimed'
       AND (o.claimed_by = %(holder)s OR %(concurrency)s::integer IS NOT NULL)
), {_ROUND}, claimed AS (
    UPDATE idem.outbox o {_TAKE}
     WHERE o.id = ANY (ARRAY(SELECT id FROM in_turn UNION ALL SELECT id FROM longest))
    RETURNING {_TAKEN}
)
SELECT a.room,
       {LAST_SERVED}, {SHARERS}, statement_timestamp() AS at, c.*
  FROM round a LEFT JOIN (
       SELECT {_ROW}, CASE WHEN NOT %(exact)s THEN r.headers END AS headers,
              CASE WHEN NOT %(exact)s THEN r.body END AS body
         FROM claimed c CROSS JOIN LATERAL (
              SELECT q.* FROM idem.requests q
               WHERE q.outbox_id = c.id AND q.generation = c.generation LIMIT 1) AS r) c ON true
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
    starts: bool = False,
) -> list[Claim]:
    """Claim up to `limit` due rows of a lane for `lease` seconds.

    `keep`: calls of the fleet to leave free where it is limited. `spare`: only rows of tenants that hold no call.

    `now` is the boot-time clock read before the statement was sent, so that this process never believes in its
    lease for longer than the database does. `tenants` is moved on; without it, what has waited longest comes first.
    `beats`: heartbeats of this `holder` that the database has committed: where it has forgotten one it went back to
    an earlier moment, and nothing is claimed until that is noticed. `table`: the outbox as
    of the last of them (`Beat.table`). `sent_as`: as whom this process sends. `starts`: the calls begin with the claim,
    so those that mark their start are marked with it (`OutboxRow.started`), but for what others may have sent.
    """
    tenants = tenants or TenantRound()
    round_due = spare or takes_turns(lane) or tenants.goes_round(now)
    begin = tenants.position.begin(now)
    parameters = {
        "token": token,
        "holder": holder,
        "beats": beats,
        "table": table,
        "lease": lease,
        "limit": limit,
        **lane_parameters(lane),
        "keep": keep,
        "sent_as": sent_as,
        "starts": starts,
    }
    if round_due:
        width = WIDTH if spare else tenants.width
        parameters |= {"turns": width, "spare": spare, "after": tenants.after}
    else:
        parameters |= {"from_time": begin[0], "from_id": begin[1]}
    cursor = records(connection)
    await cursor.execute(CLAIM if round_due else CLAIM_NEXT, parameters, prepare=True, binary=True)
    found = await cursor.fetchall()
    took = clock.boottime() - now
    room, after, sharers, at = found[0].room, found[0].after, found[0].sharers, found[0].at
    if takes_turns(lane):
        found = await with_requests(connection, token, found)
    # Where nothing was claimed, one record says how much room there is.
    found = [record for record in found if record.id is not None]
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
    ]  # fmt: skip
    whose = [record.tenant_id for record in found]
    if spare:
        tenants.claimed_spare(whose, now, room, after)
    elif round_due:
        tenants.claimed(whose, now, room, after)
        tenants.went_round(sharers, now, took)
    else:
        tenants.claimed(whose, now, room)
        tenants.position.claimed(begin, found, at, full=len(found) >= room, now=now, took=took)
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


def new_token() -> UUID:
    """A claim token, made before the statement that uses it."""
    return uuid4()
