"""Begins an attempt within a claim: committed before its first byte leaves, under every guard of a send.

The claim itself counts a replay that the contract puts first (`due`). This module counts what comes later in a claim: a
replay after a look-up, and a cancel by key, which burns the key whatever its answer is.
"""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.domain.contract import Contract
from idem.outbox.settle.doubted_rows import O_IS_LISTED
from idem.reconciler.lookup_claim import LookupClaim


def quiet_after(row: str) -> str:
    """When nothing that was sent of this row (an alias) can act any more: by what the contract said when it was sent,
    and by what it says now, whichever is later. Its limits may have been corrected since. NULL where it is not known.

    The statement has %(flight)s and %(pause)s, in seconds. The twin of `flight_left` in `idem.outbox.settle.endings`.
    """
    now = f"""{row}.status_since + make_interval(secs => %(flight)s::float8
                  + CASE WHEN {row}.sweeps > 0 THEN %(pause)s::float8 ELSE 0 END)"""
    return f"CASE WHEN {row}.quiet_after IS NOT NULL THEN greatest({row}.quiet_after, {now}) END"


def approved(row: str) -> str:
    """Whether a row (an alias) needs no approval, or has it. What lost commits may have approved and sent is looked up
    and never replayed: here a replay would be the first send (a trigger refuses it too)."""
    return f"coalesce({row}.approval, 'given') = 'given'"


MAY_SEND = f"""(SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id LIMIT 1) IS NULL
   AND NOT {O_IS_LISTED}
   AND NOT EXISTS (SELECT FROM idem.lanes l
                    WHERE l.provider = o.provider AND l.account IN (o.account, '') AND l.paused)"""  # noqa: S608
# In both a CASE, because a condition on the status lets the planner read the partial index of all that is to settle.
BEGIN_REPLAY = f"""
UPDATE idem.outbox o SET attempt = o.attempt + 1
 WHERE o.id = %(id)s AND o.attempt = %(attempt)s
   AND CASE WHEN o.status = 'unknown' AND o.claim_token = %(token)s AND NOT o.inline AND NOT o.key_burned
             AND {approved("o")}
            THEN o.claimed_until > statement_timestamp()
             AND idem.memory_left(o.first_sent_at, o.doubted_since, o.replay_window, %(window)s) > 0 END
   AND {MAY_SEND}
RETURNING o.attempt
"""  # noqa: S608


async def begin_replay(connection: AsyncConnection[Any], claim: LookupClaim, contract: Contract) -> int | None:
    """Count a replay as an attempt; its number. None: the retention guard, a burned key, a pause, a proof that came in
    or a lost claim forbids it."""
    parameters = {
        "id": claim.row.id, "attempt": claim.row.attempt, "token": claim.row.token,
        "window": contract.memory,
    }  # fmt: skip
    begun = await (await connection.execute(BEGIN_REPLAY, parameters)).fetchone()
    return None if begun is None else int(begun[0])


BEGIN_CANCEL = f"""
UPDATE idem.outbox o SET attempt = o.attempt + 1, key_burned = true, cancel_sent = true
 WHERE o.id = %(id)s AND o.attempt = %(attempt)s
   AND CASE WHEN o.status = 'unknown' AND o.claim_token = %(token)s AND NOT o.inline
            THEN o.claimed_until > statement_timestamp()
             AND (%(blocks)s OR {quiet_after("o")} <= statement_timestamp()) END
   AND {MAY_SEND}
RETURNING o.attempt
"""  # noqa: S608


async def begin_cancel(connection: AsyncConnection[Any], claim: LookupClaim, contract: Contract) -> int | None:
    """Count a cancel by key as an attempt and burn the key; its number. None: something sent may still arrive after it,
    a proof came in, the lane is paused, or the claim is lost."""
    rule = contract.cancel
    assert rule is not None  # `strategies` asks for it
    parameters = {
        "id": claim.row.id, "attempt": claim.row.attempt, "token": claim.row.token, "blocks": rule.blocks_late_requests,
        "flight": contract.flight_limit, "pause": contract.pause_allowance,
    }  # fmt: skip
    begun = await (await connection.execute(BEGIN_CANCEL, parameters)).fetchone()
    return None if begun is None else int(begun[0])
