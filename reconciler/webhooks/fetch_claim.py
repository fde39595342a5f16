"""A claimed hint, and what is written of it until its end."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database.pool import fields_of, records
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.provider import Question
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.webhook import Event
from idem.outbox.settle.step_columns import STEP_NAME
from idem.reconciler.webhooks.applying import EventFate
from idem.reconciler.webhooks.matching import MatchedCall, provider_key
from idem.reconciler.webhooks.waiting_events import WaitingEvent


@dataclass(frozen=True, slots=True)
class Hint:
    """A claimed hint, with what the provider is asked about its row; `status` None: the row has left. `overridden`: an
    operator was sure of the contrary, so that nothing waits for it any more. `later`: a later fact, when it came."""

    waiting: WaitingEvent
    match: MatchedCall
    status: OutboxStatus | None
    absences: int
    keys: tuple[str, ...]
    reference: str | None
    sent_at: float | None
    method: str
    path: str
    lease_ends: float
    overridden: bool = False
    later: bool = False
    asked_at: float = math.inf
    headers: Mapping[str, str] = field(default_factory=dict)
    traceparent: str | None = None
    """That of the row; of one that has left, nothing says it any more."""

    def question(self, event: Event) -> Question:
        """By the reference that the event names, and under the key that it carries."""
        said = None if (key := provider_key(event.key)) is None else str(key)
        first = said if said in self.keys else next(iter(self.keys), "")
        return Question(
            first or "", event.reference or self.reference, self.status is OutboxStatus.AWAITING, self.sent_at,
            self.method, self.path, tuple(key for key in self.keys if key != first), self.asked_at,
            headers=self.headers,
        )  # fmt: skip


# The claim counts as a try until it is decided, so that a hint which kills its process is noticed too. While a cancel
# of ours may still arrive, what the provider shows may be void in a moment: idem asks after that.
CLAIM_HINTS = f"""
WITH due AS MATERIALIZED (
    SELECT w.id FROM idem.webhook_events w
     WHERE w.fate = 'hint' AND w.provider = %(provider)s AND w.account = %(account)s
       AND w.retry_at <= statement_timestamp()
       AND (SELECT n.operation FROM idem.intents n WHERE n.id = w.intent_id) = ANY (%(operations)s)
       AND coalesce((SELECT o.origin FROM idem.outbox o WHERE o.id = w.outbox_id), %(origin)s) = %(origin)s
       AND NOT coalesce((SELECT o.cancel_sent
                                AND (o.claim_token IS NOT NULL OR o.quiet_after > statement_timestamp())
                           FROM idem.outbox o WHERE o.id = w.outbox_id), false)
       AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)
       AND NOT EXISTS (SELECT FROM idem.lanes l WHERE l.provider = %(provider)s AND l.account IN (%(account)s, '')
                                                  AND l.lookups_paused)
     ORDER BY w.retry_at LIMIT %(limit)s FOR UPDATE OF w SKIP LOCKED
), claimed AS (
    UPDATE idem.webhook_events w
       SET retry_at = statement_timestamp() + make_interval(secs => %(lease)s), tries = w.tries + 1
     WHERE w.id = ANY (ARRAY(SELECT id FROM due))
    RETURNING w.*
)
SELECT t.id, t.event_id, t.tries, t.place, t.out_of_time, t.intent_id, t.outbox_id, t.absences, t.reference AS named,
       (SELECT n.operation FROM idem.intents n WHERE n.id = t.intent_id) AS operation,
       (SELECT {STEP_NAME} FROM idem.intents n WHERE n.id = t.intent_id) AS step,
       extract(epoch FROM statement_timestamp() - t.received_at)::float8 AS age,
       (SELECT b.body FROM idem.webhook_bodies b WHERE b.webhook_event_id = t.id) AS body,
       (SELECT p.id FROM idem.proofs p WHERE p.id = t.id) IS NULL AS overridden,
       EXISTS (SELECT FROM idem.evidence e
                WHERE e.intent_id = t.intent_id AND e.token = t.id AND e.kind = 'later_fact') AS later,
       ARRAY(SELECT q.provider_key::text FROM idem.requests q WHERE q.outbox_id = t.outbox_id
              ORDER BY q.generation DESC) AS keys,
       r.method, r.path, r.headers, o.status, o.traceparent, o.provider_reference AS known,
       idem.known_moment(coalesce(o.first_sent_at, o.imported_sent_at, r.created_at)) AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at
  FROM claimed t
  LEFT JOIN idem.outbox o ON o.id = ANY (ARRAY[t.outbox_id])
  LEFT JOIN LATERAL (SELECT q.method, q.path, q.headers, q.created_at, q.step
                       FROM idem.requests q WHERE q.outbox_id = t.outbox_id
                      ORDER BY q.generation DESC LIMIT 1) AS r ON true
"""  # noqa: S608


async def claim_hints(
    connection: AsyncConnection[Any], lane: LaneScope, *, lease: float, limit: int, now: float
) -> list[Hint]:
    """Claim up to `limit` due hints of a lane for `lease` seconds. `now`: the boot-time clock, read before."""
    wanted = {
        "provider": lane.provider, "account": lane.account, "origin": lane.origin, "limit": limit,
        "operations": list(lane.names), "environment": lane.environment, "lease": lease,
    }  # fmt: skip
    rows = await (await records(connection).execute(CLAIM_HINTS, wanted)).fetchall()
    return [_hint(lane, row, now + lease) for row in rows]


def _hint(lane: LaneScope, row: Any, lease_ends: float) -> Hint:
    body = None if row.body is None else bytes(row.body)
    lane_and_body = {"provider": lane.provider, "account": lane.account, "fate": "hint", "body": body}
    return Hint(
        **fields_of(row, Hint)
        | {
            "waiting": WaitingEvent(**fields_of(row, WaitingEvent) | lane_and_body),
            "match": MatchedCall(row.outbox_id, row.intent_id, row.operation, step=row.step),
            "status": None if row.status is None else OutboxStatus(row.status),
            "keys": tuple(row.keys),
            "reference": row.named or row.known,
            "method": row.method or "",
            "path": row.path or "",
            "lease_ends": lease_ends,
            "headers": row.headers or {},
        }
    )


PUT_OFF = """
UPDATE idem.webhook_events
   SET retry_at = statement_timestamp() + make_interval(secs => %(again)s), absences = coalesce(%(absences)s, absences),
       tries = tries - CASE WHEN %(counts)s THEN 0 ELSE 1 END
 WHERE id = %(id)s AND fate = 'hint' AND tries = %(tries)s
"""


async def put_off(
    connection: AsyncConnection[Any], hint: Hint, *, again: float, counts: bool, absences: int | None = None
) -> None:
    """Ask again in `again` seconds; `counts`: this try was a failure of its own, and not the provider's absence."""
    waiting = hint.waiting
    about = {"id": waiting.id, "tries": waiting.tries, "again": again, "counts": counts, "absences": absences}
    await connection.execute(PUT_OFF, about)


HINT_ENDED = "UPDATE idem.webhook_events SET fate = %(fate)s, retry_at = NULL WHERE id = %(id)s AND fate = 'hint'"


async def end(connection: AsyncConnection[Any], hint: Hint, fate: EventFate) -> None:
    """Write what has become of it."""
    await connection.execute(HINT_ENDED, {"id": hint.waiting.id, "fate": fate})


HINT_IS_EARLY = """
UPDATE idem.webhook_events
   SET fate = 'early', retry_at = statement_timestamp(), tries = 0
 WHERE id = %(id)s AND fate = 'hint'
"""


async def allow_fact(connection: AsyncConnection[Any], hint: Hint) -> None:
    """Nothing contradicts the later fact any more: idem emits it as soon as its call has ended."""
    await connection.execute(HINT_IS_EARLY, {"id": hint.waiting.id})
