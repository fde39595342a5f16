"""Claims the rows to ask about, under a token and a lease; their status stays as it is.

A claim that begins with a replay is an attempt of its own; `attempts` begins what else of it can act. If the holder of
a claim dies, the next claim writes its end as evidence. Where the provider knows keys or got a cancel, it also raises
the quiet time: the lost claim may have been a replay or a cancel.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.memory import WENT_BACK
from idem.outbox.database.pool import records
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.providers.sender_identity import BITS
from idem.outbox.settle.doubted_rows import C_IS_LISTED
from idem.outbox.settle.record import noted
from idem.outbox.settle.step_columns import CALL, contradiction, step_columns
from idem.outbox.worker.claim import lane_parameters
from idem.outbox.worker.exact_limits import takes_turns, with_requests
from idem.reconciler.attempts import approved, quiet_after
from idem.reconciler.lookup_claim import LookupClaim, lookup_claim

LATER_KEYS = 2
"""Generations of a provider key that lost commits may have made: after a burned key, or by an operator's redrive."""


def _is_ours(row: str) -> str:
    """Whether this process calls as the sender of this row (an alias), as far as one is known."""
    return f"({row}.sent_as IS NULL OR {row}.sent_as >> {BITS} = ANY (%(senders)s::bigint[]))"


_EXPIRED = noted(
    "reconciler", "claim_expired", "picked p WHERE p.claim_token IS NOT NULL",
    intent_id="p.intent_id", outbox_id="p.id", step="p.step", attempt="p.attempt", token="p.claim_token",
    from_status="p.status", to_status="p.status", holder="p.claimed_by", claimed_at="p.claimed_at",
    claimed_until="p.claimed_until",
)  # fmt: skip
# `pause` and `room` are read once for the whole lane. If the pause of calls alone blocks a replay and no other strategy
# is open, the row is not claimed; otherwise it would count as asked without result.
CLAIM_DUE = f"""
WITH pause AS MATERIALIZED (
    SELECT coalesce(bool_or(l.paused), false) AS calls, coalesce(bool_or(l.lookups_paused), false) AS lookups
      FROM idem.lanes l WHERE l.provider = %(provider)s AND l.account IN (%(account)s, '')
), room AS MATERIALIZED (
    SELECT CASE WHEN p.calls AND p.lookups OR {WENT_BACK} THEN 0
                WHEN %(exact)s
                THEN idem.lane_capacity_locked(%(provider)s, %(account)s, %(concurrency)s::integer,
                                               %(asking)s::integer, true, %(limit)s::integer)
                ELSE idem.lane_capacity(%(provider)s, %(account)s, %(concurrency)s::integer, %(asking)s::integer, true,
                                    %(limit)s::integer) END AS n
      FROM pause p
), picked AS MATERIALIZED (
    SELECT c.id, c.intent_id, c.step, c.attempt, c.status, c.claim_token, c.claimed_by, c.claimed_at, c.claimed_until
      FROM idem.outbox c
     WHERE c.status IN ('unknown', 'awaiting')
       AND c.provider = %(provider)s AND c.account = %(account)s
       AND c.available_at <= statement_timestamp()
       AND (c.claim_token IS NULL OR c.claimed_until <= statement_timestamp())
       -- The end of an expired claim is evidence of its intent: one that another session holds waits.
       AND CASE WHEN c.claim_token IS NULL THEN true
                ELSE (SELECT n.id FROM idem.intents n WHERE n.id = c.intent_id FOR KEY SHARE SKIP LOCKED)
                     IS NOT NULL END
       AND c.origin = %(origin)s
       AND {CALL} = ANY (%(calls)s)
       AND c.format_version = ANY (%(formats)s)
       AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id AND p.outcome <> 'hint' LIMIT 1) IS NULL
       AND NOT {C_IS_LISTED}
       AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)
       AND CASE WHEN c.status = 'unknown' AND NOT c.inline AND NOT c.key_burned AND %(replays)s AND {approved("c")}
                 AND idem.memory_left(c.first_sent_at, c.doubted_since, c.replay_window, %(window)s) > 0
                THEN %(lookups)s OR NOT (SELECT calls FROM pause)
                ELSE NOT (SELECT lookups FROM pause) END
     ORDER BY c.available_at, c.id
     LIMIT (SELECT n FROM room)
       FOR UPDATE OF c SKIP LOCKED
), expired AS (
    {_EXPIRED}
        ON CONFLICT DO NOTHING
), claimed AS (
    UPDATE idem.outbox o
       SET claim_token   = %(token)s,
           claimed_by    = %(holder)s,
           claimed_at    = statement_timestamp(),
           claimed_until = statement_timestamp() + make_interval(secs => %(lease)s),
           sent_as       = coalesce(o.sent_as, %(sent_as)s::bigint),
           attempt       = o.attempt + CASE
               WHEN o.status = 'unknown' AND NOT o.inline AND NOT o.key_burned AND %(replays)s AND %(first)s
                AND {approved("o")}
                AND NOT (SELECT calls FROM pause)
                AND {_is_ours("o")}
                AND (SELECT r.step FROM idem.requests r
                      WHERE r.outbox_id = o.id AND r.generation = o.generation) IS NOT NULL
                AND idem.memory_left(o.first_sent_at, o.doubted_since, o.replay_window, %(window)s) > 0
               THEN 1 ELSE 0 END,
           quiet_after   = CASE WHEN o.claim_token IS NULL OR (o.replay_window = 0 AND NOT o.cancel_sent)
                                THEN o.quiet_after
                                ELSE greatest(o.quiet_after, o.claimed_until + make_interval(secs => %(quiet)s)) END
     WHERE o.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING o.id, o.intent_id, o.operation, o.attempt, o.status, o.provider_key, o.provider_reference, o.generation,
              o.inline, o.lookups, o.absences, coalesce(o.scheduled_at > statement_timestamp(), false) AS extra_lookup,
              o.quiet_after, o.status_since, o.sweeps, o.key_burned, o.cancel_sent, o.server_error, o.first_sent_at,
              o.doubted_since, o.step, o.step_name, o.traceparent, o.imported_as, o.sent_as,
              idem.memory_left(o.first_sent_at, o.doubted_since, o.replay_window, %(window)s) AS memory_left,
              o.status = 'unknown' AND NOT o.inline AND NOT o.key_burned AND %(replays)s AND {approved("o")}
              AND NOT (SELECT calls FROM pause) AS may_replay
)
SELECT t.id, t.intent_id, t.operation, t.attempt, t.status, t.step,
       {step_columns("t")},
       t.provider_key::text AS provider_key,
       t.provider_reference AS reference, coalesce(t.may_replay AND t.memory_left > 0, false)
                                        AND r.outbox_id IS NOT NULL AS replay, t.memory_left,
       NOT (SELECT calls FROM pause) AS may_send, NOT (SELECT lookups FROM pause) AS may_look_up,
       t.inline, t.traceparent, t.imported_as, t.sent_as,
       {_is_ours("t")} AS as_before,
       t.lookups, t.extra_lookup, t.absences, t.key_burned, t.cancel_sent, t.server_error,
       extract(epoch FROM {quiet_after("t")} - statement_timestamp())::float8 AS quiet_left,
       idem.known_moment(t.first_sent_at) AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at,
       {contradiction("t")}
       OR (SELECT h.id FROM idem.proofs h WHERE h.outbox_id = t.id AND h.outcome = 'hint' LIMIT 1) IS NOT NULL
       AS contradicted,
       ARRAY(SELECT q.provider_key::text FROM idem.requests q
              WHERE q.outbox_id = t.id AND q.generation < t.generation ORDER BY q.generation) AS earlier_keys,
       CASE WHEN t.doubted_since IS NOT NULL AND NOT t.inline THEN
           ARRAY(SELECT idem.provider_key(i.hmac_inner, i.hmac_outer, n.tenant_id, n.operation, n.idempotency_key,
                                          t.step, t.generation + g)::text
                   FROM idem.installation i, idem.intents n, generate_series(1, %(later)s) AS g
                  WHERE n.id = t.intent_id) ELSE '{{}}' END AS later_keys,
       r.method, r.path, CASE WHEN NOT %(exact)s THEN r.headers END AS headers,
       CASE WHEN NOT %(exact)s THEN r.body END AS body
  FROM claimed t LEFT JOIN idem.requests r ON r.outbox_id = ANY (ARRAY[t.id]) AND r.generation = t.generation
"""  # noqa: S608


async def claim_due(
    connection: AsyncConnection[Any],
    lane: LaneScope,
    contract: Contract,
    *,
    token: UUID,
    holder: str,
    lease: float,
    limit: int,
    now: float,
    replay_first: bool = True,
    beats: int = 0,
    table: int = 0,
    sent_as: int | None = None,
    senders: Collection[int] = (),
) -> list[LookupClaim]:
    """Claim up to `limit` due rows of a lane for `lease` seconds, the longest due first.

    The retention guard is part of the statement: a replay is allowed only while the provider certainly remembers the
    key, by its promise at accept and by its present promise, less the margin (hazard 7), and never under a burned key
    (hazard 10). `replay_first`: the contract begins with a replay, so the claim is its attempt. `now` is the boot-time
    clock, read before the statement is sent. `beats` and `table` are as in the worker's `claim`. `sent_as`: the sender
    of this process, which counts as the sender of a row without a known one; `senders`: all senders that equal it. A
    claim does not begin with a replay of what other senders have sent.
    """
    parameters = {
        **lane_parameters(lane),
        "limit": limit,
        "token": token,
        "holder": holder,
        "beats": beats,
        "table": table,
        "lease": lease,
        "replays": contract.replays,
        "first": replay_first,
        "window": contract.memory,
        "quiet": contract.flight_limit + contract.pause_allowance,
        "flight": contract.flight_limit,
        "pause": contract.pause_allowance,
        "lookups": contract.lookup.possible,
        "later": LATER_KEYS,
        "sent_as": sent_as,
        "senders": list(senders),
    }
    found = await (await records(connection).execute(CLAIM_DUE, parameters)).fetchall()
    if takes_turns(lane):
        found = await with_requests(connection, token, found)
    return [
        lookup_claim(r, lane, contract, token=token, now=now, lease=lease, replay_first=replay_first) for r in found
    ]


# A subquery that gives one value, because a join would read the ledger whole.
# A row that another session holds is being decided about, or held by a person: it keeps its time, and no other waits.
HASTEN_LANE = """
UPDATE idem.outbox SET available_at = statement_timestamp()
 WHERE id = ANY (ARRAY(
       SELECT o.id FROM idem.outbox o
        WHERE o.status IN ('unknown', 'awaiting') AND o.provider = %(provider)s AND o.account = %(account)s
          AND o.available_at > statement_timestamp() AND o.failures > 0
        ORDER BY o.id
          FOR NO KEY UPDATE SKIP LOCKED))
"""


async def hasten_lane(connection: AsyncConnection[Any], lane: LaneScope) -> int:
    """Make every row due that could not be asked about while the provider was away; how many."""
    parameters = {"provider": lane.provider, "account": lane.account}
    return (await connection.execute(HASTEN_LANE, parameters)).rowcount


# What is ordered comes beside the schedule: its own next look keeps its time.
HASTEN = """
UPDATE idem.outbox SET available_at = statement_timestamp(), scheduled_at = coalesce(scheduled_at, available_at)
 WHERE id = ANY (ARRAY(
       SELECT o.id FROM idem.outbox o
        WHERE o.status IN ('unknown', 'awaiting') AND o.available_at > statement_timestamp()
          AND (%(since)s::timestamptz IS NULL
               OR (SELECT n.created_at FROM idem.intents n WHERE n.id = o.intent_id) >= %(since)s)
        ORDER BY o.id
          FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id
"""


async def hasten(connection: AsyncConnection[Any], *, since: datetime | None) -> int:
    """Order a look at every unknown and awaiting row now (of intents since a time, if given); how many.

    A look that is ordered uses up none of the schedule.
    """
    return len(await (await connection.execute(HASTEN, {"since": since})).fetchall())
