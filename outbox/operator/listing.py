"""Read-only queries for operators and clients; the list of intents is in `intent_list`.

A record's keys are its columns' names, which do not change.

Ages and times left are in seconds by the database's clock, negative if past; times have a time zone. No query reads
credentials, which are never stored. Params are included only on request; bodies of requests and of a provider's answers
are masked unless asked for.
"""

from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict, Unpack
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.domain import plan as plans
from idem.outbox.domain import redaction
from idem.outbox.operator.step_view import steps_of
from idem.outbox.settle.step_columns import place_of_letter

Record: TypeAlias = dict[str, Any]


class EntryFilters(TypedDict, total=False):
    """What every list may be limited to. A filter that is None or absent matches everything; `limit` is 100."""

    provider: str | None
    account: str | None
    label: str | None
    reference: str | None
    since: datetime | None
    until: datetime | None
    limit: int


class DeadLetterFilters(EntryFilters, total=False):
    """The same for dead letters. `resolved` shows those too; `after` is the last id of the page before."""

    reason: str | None
    resolved: bool
    after: UUID | None


class UnknownFilters(EntryFilters, total=False):
    """The same for unknown rows, by when they became unknown. `awaiting` shows those that the provider works on too."""

    awaiting: bool


_NAMES = {*DeadLetterFilters.__annotations__, *UnknownFilters.__annotations__}
_UNFILTERED: Final[dict[str, Any]] = dict.fromkeys(_NAMES) | {"resolved": False, "awaiting": False, "limit": 100}


async def _all(connection: AsyncConnection[Any], query: str, **parameters: Any) -> list[Record]:
    cursor = connection.cursor(row_factory=dict_row)
    return await (await cursor.execute(query, parameters)).fetchall()


async def _one(connection: AsyncConnection[Any], query: str, **parameters: Any) -> Record | None:
    return next(iter(await _all(connection, query, **parameters)), None)


# Of a flow: where the step goes that the entry is about; else that of its open step.
_PLACE = {
    column: f"""coalesce(n.{column}, {place_of_letter(column)}, o.{column}, w.{column},
                d.details ->> '{column}')"""
    for column in ("provider", "account")
}
DEAD_LETTERS = f"""
SELECT d.id, d.reason, d.intent_id, n.state, o.status, n.operation,
       {_PLACE["provider"]} AS provider,
       {_PLACE["account"]} AS account,
       CASE WHEN n.plan IS NOT NULL THEN coalesce(d.details ->> 'step', o.step_name) END AS step,
       n.label, n.version, d.seen,
       d.webhook_event_id, d.subject, d.details, d.created_at,
       extract(epoch FROM statement_timestamp() - d.created_at)::float8 AS age,
       d.resolved_at, d.resolution, d.resolved_by, d.note
  FROM idem.dead_letters d
  LEFT JOIN idem.intents n ON n.id = ANY (ARRAY[d.intent_id])
  LEFT JOIN idem.outbox o ON o.intent_id = ANY (ARRAY[d.intent_id])
  LEFT JOIN idem.webhook_events w ON w.id = ANY (ARRAY[d.webhook_event_id])
 WHERE (%(resolved)s OR d.resolved_at IS NULL)
   AND (%(letter)s::uuid IS NULL OR d.id = %(letter)s)
   AND (%(reason)s::text IS NULL OR d.reason = %(reason)s)
   AND (%(provider)s::text IS NULL OR {_PLACE["provider"]} = %(provider)s)
   AND (%(account)s::text IS NULL OR {_PLACE["account"]} = %(account)s)
   AND (%(label)s::text IS NULL OR n.label = %(label)s)
   AND (%(reference)s::text IS NULL OR n.provider_reference = %(reference)s
        OR n.plan IS NOT NULL
           AND (o.provider_reference = %(reference)s
                OR %(reference)s IN (SELECT s.provider_reference FROM idem.steps s WHERE s.intent_id = n.id)))
   AND (%(since)s::timestamptz IS NULL OR d.created_at >= %(since)s)
   AND (%(until)s::timestamptz IS NULL OR d.created_at < %(until)s)
   AND (%(after)s::uuid IS NULL OR d.id > %(after)s)
 ORDER BY d.id LIMIT %(limit)s
"""  # noqa: S608


async def dead_letters(connection: AsyncConnection[Any], **filters: Unpack[DeadLetterFilters]) -> list[Record]:
    """Dead letters, oldest first."""
    return await _all(connection, DEAD_LETTERS, **{**_UNFILTERED, "letter": None, **filters})


async def dead_letter(connection: AsyncConnection[Any], letter_id: UUID) -> Record | None:
    """One dead letter, open or resolved."""
    return await _one(connection, DEAD_LETTERS, **{**_UNFILTERED, "letter": letter_id, "resolved": True})


EVENT = """
SELECT w.id, w.provider, w.account, w.event_id, w.type, w.reference, w.fate, w.tries, w.received_at, w.retry_at,
       w.out_of_time, w.intent_id, extract(epoch FROM statement_timestamp() - w.received_at)::float8 AS age,
       (SELECT octet_length(b.body) FROM idem.webhook_bodies b WHERE b.webhook_event_id = w.id) AS body_bytes
  FROM idem.webhook_events w WHERE w.id = %(event)s
"""


async def event(connection: AsyncConnection[Any], event_row: UUID) -> Record | None:
    """One event of a provider, without its body; None if it is past its retention."""
    return await _one(connection, EVENT, event=event_row)


INTENT = """
SELECT n.id, n.tenant_id, n.operation, n.idempotency_key, n.state, n.outcome, n.recovery_point, n.plan, n.version,
       n.provider, n.account, n.provider_reference, n.label, n.asked_by,
       CASE WHEN %(params)s THEN n.params END AS params, n.result, n.interim, n.object_end,
       n.requested_at, n.created_at, n.settled_at, k.state AS key_state, k.response_status, k.last_error_code,
       k.last_error_message, k.expires_at
  FROM idem.intents n
  LEFT JOIN idem.idempotency_keys k ON k.intent_id = ANY (ARRAY[n.id])
 WHERE n.id = %(intent)s
"""
ROW = """
SELECT o.id, o.status, o.step, o.step_name, o.attempt, o.provider, o.account, o.origin, o.provider_key,
       o.provider_reference, o.lookups, o.absences, o.failures, o.redrives, o.sweeps, o.status_since, o.available_at,
       o.start_before, o.first_sent_at, o.claimed_by, o.claimed_until, o.quiet_after, o.redrive_at, o.approval,
       extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS age,
       extract(epoch FROM o.available_at - statement_timestamp())::float8 AS due_in,
       extract(epoch FROM o.claimed_until - statement_timestamp())::float8 AS lease_left,
       extract(epoch FROM o.quiet_after - statement_timestamp())::float8 AS quiet_left,
       CASE WHEN o.replay_window > 0 AND NOT o.key_burned
            THEN nullif(idem.memory_left(o.first_sent_at, o.doubted_since, o.replay_window, NULL), '-Infinity')
            END AS replay_window_left,
       o.ordering_group, o.ordering_key,
       CASE WHEN o.ordering_key IS NULL THEN NULL
            WHEN o.ordering_number IS NULL THEN 'out of the order'
            WHEN idem.is_blocked(o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number) THEN 'blocked'
            ELSE 'first' END AS place,
       coalesce((SELECT h.intent_id FROM idem.order_holds h
                  WHERE h.tenant_id = o.tenant_id AND h.ordering_group = o.ordering_group
                    AND h.ordering_key = o.ordering_key),
                (SELECT b.intent_id FROM idem.outbox b
                  WHERE b.tenant_id = o.tenant_id AND b.ordering_group = o.ordering_group
                    AND b.ordering_key = o.ordering_key AND b.ordering_number < o.ordering_number
                  ORDER BY b.tenant_id, b.ordering_group, b.ordering_key, b.ordering_number LIMIT 1)) AS blocked_by,
       o.doubted_since,
       coalesce(idem.is_ahead(greatest(o.first_sent_at, o.doubted_since, o.denied_sent_at)), false) AS sent_ahead
  FROM idem.outbox o WHERE o.intent_id = %(intent)s
"""
REQUESTS = """
SELECT r.outbox_id, r.step, r.generation, r.provider_key, r.provider, r.account, r.method, r.path, r.created_at,
       CASE WHEN %(unmask)s THEN r.body ELSE substring(r.body FROM 1 FOR 65536) END AS body
  FROM idem.requests r WHERE r.intent_id = %(intent)s ORDER BY r.step, r.generation
"""
ANSWERS = """
SELECT a.outbox_id, a.outcome, a.attempt, a.http_status, a.message, a.body, a.times, a.at
  FROM idem.provider_answers a WHERE a.intent_id = %(intent)s ORDER BY a.at, a.outcome
"""
STEPS = """
SELECT s.step, s.outcome, s.provider_reference, s.provider_status, s.object_end, s.fields, s.ended_at
  FROM idem.steps s WHERE s.intent_id = %(intent)s ORDER BY s.step
"""
TIMELINE = """
SELECT e.at, e.source, e.kind, e.outcome, e.step, e.attempt, e.http_status, e.provider_reference, e.from_state,
       e.to_state, e.from_status, e.to_status, e.holder, e.claimed_at, e.claimed_until, e.database_role, e.details
  FROM idem.evidence e WHERE e.intent_id = %(intent)s ORDER BY e.at, e.kind = 'begun', e.id
"""
STORED = """
SELECT p.id, p.source, p.outcome, p.reference, p.status, p.http_status, p.stored_at,
       extract(epoch FROM statement_timestamp() - p.stored_at)::float8 AS age
  FROM idem.proofs p WHERE p.intent_id = %(intent)s ORDER BY p.stored_at, p.id
"""
DEAD_LETTERS_OF_INTENT = """
SELECT d.id, d.reason, d.seen, d.details, d.created_at, d.resolved_at, d.resolution, d.resolved_by, d.note
  FROM idem.dead_letters d WHERE d.intent_id = %(intent)s ORDER BY d.id
"""


async def intent(
    connection: AsyncConnection[Any], intent_id: UUID, *, params: bool = False, unmask: bool = False
) -> Record | None:
    """One intent with everything that is known about it: its steps, row, requests, the provider's answers, stored
    proofs, dead letters, timeline. Bodies of requests and answers are masked unless `unmask`. None: there is none.
    """
    found = await _one(connection, INTENT, intent=intent_id, params=params)
    if found is None:
        return None
    if not params:
        del found["params"]
    flow, row = plans.plan(found.pop("plan")), await _one(connection, ROW, intent=intent_id)
    ended = [] if flow is None else await _all(connection, STEPS, intent=intent_id)
    return found | {
        "steps": [] if flow is None else steps_of(flow, ended, row),
        "row": row,
        "requests": [
            each | {"body": _body(bytes(each["body"]).decode("utf-8", "replace"), unmask)}
            for each in await _all(connection, REQUESTS, intent=intent_id, unmask=unmask)
        ],
        "answers": [
            each | {"body": None if each["body"] is None else _body(each["body"], unmask)}
            for each in await _all(connection, ANSWERS, intent=intent_id)
        ],
        "proofs": await _all(connection, STORED, intent=intent_id),
        "dead_letters": await _all(connection, DEAD_LETTERS_OF_INTENT, intent=intent_id),
        "timeline": [
            each | {"step_name": None if flow is None or each["step"] is None else flow.step(each["step"]).name}
            for each in await _all(connection, TIMELINE, intent=intent_id)
        ],
    }


def _body(text: str, unmask: bool) -> str:
    return text if unmask else redaction.masked(text)


UNKNOWNS = """
SELECT o.intent_id, o.status, n.operation, o.step_name AS step, o.provider, o.account, n.label, o.attempt,
       o.lookups, o.absences, o.provider_key, o.provider_reference, o.status_since, o.available_at AS next_lookup_at,
       o.quiet_after,
       extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS age,
       extract(epoch FROM o.available_at - statement_timestamp())::float8 AS next_lookup_in,
       CASE WHEN o.replay_window > 0 AND NOT o.key_burned
            THEN nullif(idem.memory_left(o.first_sent_at, o.doubted_since, o.replay_window, NULL), '-Infinity')
            END AS replay_window_left,
       ARRAY(SELECT d.reason FROM idem.dead_letters d
              WHERE d.intent_id = o.intent_id AND d.resolved_at IS NULL ORDER BY d.reason) AS dead_letters
  FROM idem.outbox o JOIN idem.intents n ON n.id = ANY (ARRAY[o.intent_id])
 WHERE (o.status = 'unknown' OR (%(awaiting)s AND o.status = 'awaiting'))
   AND (%(provider)s::text IS NULL OR o.provider = %(provider)s)
   AND (%(account)s::text IS NULL OR o.account = %(account)s)
   AND (%(label)s::text IS NULL OR n.label = %(label)s)
   AND (%(reference)s::text IS NULL OR o.provider_reference = %(reference)s)
   AND (%(since)s::timestamptz IS NULL OR o.status_since >= %(since)s)
   AND (%(until)s::timestamptz IS NULL OR o.status_since < %(until)s)
 ORDER BY o.status_since, o.id LIMIT %(limit)s
"""


async def unknowns(connection: AsyncConnection[Any], **filters: Unpack[UnknownFilters]) -> list[Record]:
    """Rows whose outcome is unknown, oldest first."""
    return await _all(connection, UNKNOWNS, **{**_UNFILTERED, **filters})
