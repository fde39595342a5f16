"""The record beside the state: evidence, dead letters and events.

In Python, only the gate, `commonest`, `order` and this module insert them; the SQL functions of accept, of the client's
retry, of an approval, of steps and of inline calls insert their own.

A dead letter is logged and counted after the commit. A statement that changes rows by itself (a sweep, a claim,
a doubt) puts the clause `noted` or `buried` into its own text, so that the change and its record are one statement.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.domain.states import Reason
from idem.outbox.domain.transition import EventType, Evidence
from idem.outbox.observe import after_commit
from idem.outbox.values import storable


def noted(source: str, kind: str, found: str, **columns: str) -> str:
    """The clause that writes the evidence of a statement's own changes: an SQL expression for each column.

    `found`: what stands after FROM.
    """
    names, values = ", ".join(columns), ", ".join(columns.values())
    return f"INSERT INTO idem.evidence (source, kind, {names}) SELECT '{source}', '{kind}', {values} FROM {found}"  # noqa: S608


def buried(reason: Reason, found: str, *, subject: str, details: str) -> str:
    """The clause that opens an entry about a subject without an intent; an open one is counted. It returns the id."""
    return f"""
    INSERT INTO idem.dead_letters AS d (subject, reason, details)
    SELECT {subject}, '{reason.value}', {details} FROM {found}
        ON CONFLICT (subject, reason) WHERE resolved_at IS NULL AND intent_id IS NULL
        DO UPDATE SET seen = d.seen + 1, details = excluded.details
    RETURNING d.id"""  # noqa: S608


NOTE = """
INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, outcome, http_status,
                           provider_reference, details)
SELECT r.intent_id, r.outbox_id, r.step, %(attempt)s, %(token)s, %(source)s, %(kind)s, %(outcome)s, %(http_status)s,
       %(reference)s, %(details)s::jsonb
  FROM idem.requests r WHERE r.outbox_id = %(row)s ORDER BY r.generation DESC LIMIT 1
    ON CONFLICT DO NOTHING
"""


async def note(
    connection: AsyncConnection[Any],
    row_id: UUID,
    evidence: Evidence,
    *,
    kind: str | None = None,
    token: UUID | None = None,
    attempt: int | None = None,
) -> None:
    """Evidence that causes no transition."""
    seen = evidence.seen
    details = {"error": seen.error, "note": seen.note, "code": seen.code, **evidence.details}
    await connection.execute(
        NOTE,
        {
            "row": row_id,
            "attempt": attempt,
            "token": token,
            "source": evidence.source,
            "kind": kind or evidence.kind,
            "outcome": evidence.outcome,
            "http_status": seen.http_status,
            "reference": storable.text(evidence.reference, 500) if evidence.reference is not None else None,
            "details": _json({k: v for k, v in details.items() if v is not None}),
        },
    )


NOTE_OPERATOR = """
INSERT INTO idem.evidence (intent_id, source, kind, details)
SELECT n.id, 'operator', %(kind)s, %(details)s::jsonb FROM idem.intents n WHERE n.id = %(intent)s
"""


async def note_operator(connection: AsyncConnection[Any], intent: UUID, kind: str, details: Mapping[str, Any]) -> None:
    """What an operator has done about an intent without moving it."""
    await connection.execute(NOTE_OPERATOR, {"intent": intent, "kind": kind, "details": _json(details)})


BURY = """
INSERT INTO idem.dead_letters AS d (intent_id, webhook_event_id, reason, details)
VALUES (%(intent)s, %(event)s, %(reason)s, %(details)s::jsonb)
    ON CONFLICT (intent_id, reason) WHERE resolved_at IS NULL DO UPDATE SET seen = d.seen + 1 RETURNING d.seen
"""


async def bury(
    connection: AsyncConnection[Any],
    intent: UUID,
    reason: Reason,
    details: Mapping[str, Any],
    *,
    event: UUID | None = None,
) -> None:
    """Open an entry about an intent; one that is open is counted. `event`: the webhook event that it is about."""
    about = {"intent": intent, "event": event, "reason": reason, "details": _json(details)}
    if await (await connection.execute(BURY, about)).fetchone() == (1,):
        after_commit.emit(connection, partial(after_commit.dead_letter, intent, reason))


BURY_UNMATCHED = """
INSERT INTO idem.dead_letters (webhook_event_id, reason, details) VALUES (%(event)s, %(reason)s, %(details)s::jsonb)
    ON CONFLICT (webhook_event_id) WHERE reason = 'unmatched_webhook' DO NOTHING RETURNING seen
"""


async def bury_unmatched(connection: AsyncConnection[Any], event: UUID, details: Mapping[str, Any]) -> None:
    """Open the entry of a webhook event that matches no call, once."""
    about = {"event": event, "reason": Reason.UNMATCHED_WEBHOOK, "details": _json(details)}
    if await (await connection.execute(BURY_UNMATCHED, about)).fetchone() is not None:
        after_commit.emit(connection, partial(after_commit.dead_letter, None, Reason.UNMATCHED_WEBHOOK))


# An intent has one open entry of this reason: another object of it gets one of its own, which names the intent.
BURY_DISCREPANCY = """
INSERT INTO idem.dead_letters (intent_id, subject, reason, details)
SELECT CASE WHEN EXISTS (SELECT FROM idem.dead_letters d
                          WHERE d.intent_id = %(intent)s AND d.reason = 'discrepancy' AND d.resolved_at IS NULL)
            THEN NULL ELSE %(intent)s::uuid END, %(subject)s, 'discrepancy', %(details)s::jsonb
    ON CONFLICT DO NOTHING RETURNING id
"""


async def bury_discrepancy(
    connection: AsyncConnection[Any], intent: UUID | None, subject: str, details: Mapping[str, Any]
) -> UUID | None:
    """Open the entry of a discrepancy; its id. None: there is one."""
    about = {"intent": intent, "subject": subject, "details": _json(details)}
    opened = await (await connection.execute(BURY_DISCREPANCY, about)).fetchone()
    if opened is None:
        return None
    after_commit.emit(connection, partial(after_commit.dead_letter, intent, Reason.DISCREPANCY))
    return UUID(str(opened[0]))


EMIT = """
INSERT INTO idem.events (aggregateid, number, type, payload)
SELECT n.id, e.number, %(type)s,
       jsonb_build_object('intent', n.id, 'number', e.number, 'tenant', n.tenant_id, 'operation', n.operation,
                          'label', n.label, 'state', n.state, 'outcome', coalesce(%(outcome)s::text, n.outcome),
                          'provider_reference', coalesce(%(reference)s::text, n.provider_reference))
       || %(more)s::jsonb
  FROM idem.intents n CROSS JOIN LATERAL (
       SELECT 1 + coalesce(max(v.number), 0) AS number FROM idem.events v WHERE v.aggregateid = n.id) AS e
 WHERE n.id = %(intent)s
"""


async def emit(
    connection: AsyncConnection[Any],
    intent: UUID,
    event: EventType,
    more: Mapping[str, Any],
    *,
    outcome: str | None = None,
    reference: str | None = None,
) -> None:
    """Emit an event of an intent that stays as it is. The caller holds the intent's lock, because events are numbered.

    `more`: members of its payload; mappings are made storable here. `outcome`, `reference`: of the object that it is
    about, where they are not the intent's.
    """
    about = {
        "intent": intent,
        "type": event,
        "outcome": outcome,
        "reference": None if reference is None else storable.text(reference, 500),
        "more": json.dumps({name: storable.fields(v) if isinstance(v, Mapping) else v for name, v in more.items()}),
    }
    await connection.execute(EMIT, about)


def _json(details: Mapping[str, Any]) -> str:
    return json.dumps(storable.fields(details))
