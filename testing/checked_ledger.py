"""Reads the database for a test's assertions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import RowFactory, class_row, dict_row, tuple_row

Found = TypeVar("Found")


@dataclass(frozen=True)
class Intent:
    """One intent. `state` is the state of its key, `status` the status of its outbox row (None: it has no row).

    `attempts` counts first sends and replays, of a flow those of all its steps. `answer_status` and `answer_body` are
    what the client gets.
    """

    id: UUID
    tenant: str
    operation: str
    key: str
    state: str
    status: str | None
    outcome: str | None
    reference: str | None
    attempts: int
    params: Any
    label: str | None
    answer_status: int | None
    answer_body: bytes | None

    @property
    def answer(self) -> Any:
        """The body of the stored answer as JSON; None if there is no answer yet."""
        return json.loads(self.answer_body) if self.answer_body else None


@dataclass(frozen=True)
class HistoryRow:
    """One row of an intent's history."""

    at: datetime
    source: str
    kind: str
    attempt: int | None
    outcome: str | None
    http_status: int | None
    from_state: str | None
    to_state: str | None
    from_status: str | None
    to_status: str | None
    details: Mapping[str, Any]


@dataclass(frozen=True)
class RecordedStep:
    """The end of a step of a flow.

    `outcome`: succeeded, refused, skipped or cancelled. `undoes`: of a compensation, the number of the step that it
    undoes. `attempts` counts first sends and replays of this step.
    """

    number: int
    name: str
    outcome: str
    reference: str | None
    undoes: int | None
    attempts: int


@dataclass(frozen=True)
class RecordedDeadLetter:
    """An entry that waits for an operator."""

    reason: str
    intent: UUID | None
    key: str | None
    details: Mapping[str, Any]


INTENTS = """
SELECT i.id, i.tenant_id AS tenant, i.operation, i.idempotency_key AS key, coalesce(k.state, i.state) AS state,
       o.status, i.outcome, i.provider_reference AS reference, i.params, i.label,
       (SELECT coalesce(sum(s.attempts), 0)::integer
          FROM (SELECT max(e.attempt) AS attempts FROM idem.evidence e WHERE e.intent_id = i.id GROUP BY e.step) s
       ) AS attempts,
       k.response_status::integer AS answer_status, k.response_body AS answer_body
  FROM idem.intents i
  LEFT JOIN idem.idempotency_keys k ON k.intent_id = i.id
  LEFT JOIN idem.outbox o ON o.intent_id = i.id
 ORDER BY i.id
"""


def intents(url: str) -> list[Intent]:
    """All intents, oldest first."""
    return _rows(url, class_row(Intent), INTENTS)


EVIDENCE = """
SELECT at, source, kind, attempt, outcome, http_status, from_state, to_state, from_status, to_status, details
  FROM idem.evidence WHERE intent_id = %(intent)s ORDER BY id
"""


def evidence(url: str, intent: UUID) -> list[HistoryRow]:
    """The evidence of an intent, oldest first: who saw what."""
    return _rows(url, class_row(HistoryRow), EVIDENCE, intent=intent)


STEPS = """
SELECT s.step AS number, s.name, s.outcome, s.provider_reference AS reference, s.undoes,
       (SELECT coalesce(max(e.attempt), 0) FROM idem.evidence e
         WHERE e.intent_id = s.intent_id AND e.step = s.step) AS attempts
  FROM idem.steps s WHERE s.intent_id = %(intent)s ORDER BY s.step
"""


def steps(url: str, intent: UUID) -> list[RecordedStep]:
    """The steps of a flow that have their end, in their order; an operation of one call has none."""
    return _rows(url, class_row(RecordedStep), STEPS, intent=intent)


DEAD_LETTERS = """
SELECT d.reason, d.intent_id AS intent, i.idempotency_key AS key, d.details
  FROM idem.dead_letters d LEFT JOIN idem.intents i ON i.id = d.intent_id
 WHERE d.resolved_at IS NULL ORDER BY d.id
"""


def dead_letters(url: str) -> list[RecordedDeadLetter]:
    """The open dead letters, oldest first."""
    return _rows(url, class_row(RecordedDeadLetter), DEAD_LETTERS)


OUTBOX = """
SELECT o.*, i.idempotency_key AS key FROM idem.outbox o JOIN idem.intents i ON i.id = o.intent_id ORDER BY o.id
"""


def outbox(url: str) -> list[dict[str, Any]]:
    """The rows of calls that are still to be made, asked about or decided, with all columns and the client's key."""
    return _rows(url, dict_row, OUTBOX)


@dataclass(frozen=True)
class Left:
    """Unfinished work. `due`: seconds until a daemon works on it, negative if overdue, None if not planned."""

    what: str
    key: str
    operation: str
    due: float | None

    def __str__(self) -> str:
        when = "" if self.due is None else ", due" if self.due <= 0 else f", due in {self.due:.0f} s"
        return f"{self.operation} {self.key!r}: {self.what}{when}"


LEFT = """
SELECT CASE WHEN EXISTS (SELECT FROM idem.lanes l
                          WHERE l.provider = o.provider AND l.account IN (o.account, '')
                            AND CASE WHEN o.status IN ('unknown', 'awaiting') THEN l.lookups_paused ELSE l.paused END)
            THEN 'outbox row ' || o.status || ', and its lane is paused'
            ELSE 'outbox row ' || o.status END AS what,
       i.idempotency_key AS key, i.operation,
       extract(epoch FROM CASE
           WHEN o.status = 'waiting' THEN NULL
           WHEN o.status = 'held' THEN o.redrive_at
           WHEN o.claim_token IS NOT NULL THEN greatest(o.claimed_until, CASE o.status WHEN 'claimed' THEN NULL
                                                                                       ELSE o.available_at END)
           ELSE o.available_at END - statement_timestamp())::float8 AS due
  FROM idem.outbox o
  JOIN idem.intents i ON i.id = o.intent_id
 WHERE NOT (o.status = 'held' AND o.redrive_at IS NULL)
   AND NOT (o.status IN ('unknown', 'awaiting') AND EXISTS (
       SELECT FROM idem.dead_letters d WHERE d.intent_id = o.intent_id AND d.resolved_at IS NULL
          AND d.reason IN ('reconcile_exhausted', 'not_settleable', 'partial', 'pending_too_long')))
UNION ALL
SELECT 'a proof that is not applied', i.idempotency_key, i.operation, 0
  FROM idem.proofs p JOIN idem.intents i ON i.id = p.intent_id
UNION ALL
SELECT 'handler ' || w.handler || CASE WHEN w.failures > 0 THEN format(' (failed %%s times)', w.failures) ELSE '' END,
       i.idempotency_key, i.operation, extract(epoch FROM w.due_at - statement_timestamp())::float8
  FROM idem.handler_work w JOIN idem.intents i ON i.id = w.intent_id
 WHERE w.dead_letter_id IS NULL AND w.handler = ANY (%(handlers)s)
"""
# A number that stays the same while nothing happens.
MOVES = """
SELECT (SELECT count(*) FROM idem.evidence) + (SELECT count(*) FROM idem.handled_events)
     + (SELECT coalesce(sum(lookups + failures + attempt), 0) FROM idem.outbox)
     + (SELECT coalesce(sum(failures), 0) FROM idem.handler_work)
"""


def left(url: str, handlers: list[str]) -> tuple[list[Left], int]:
    """The unfinished work, and a number that changes whenever something happens.

    Work that an operator must decide is not in it: it has a dead letter.
    """
    ((moves,),) = _rows(url, tuple_row, MOVES)
    return _rows(url, class_row(Left), LEFT, handlers=handlers), int(moves)


def _rows(url: str, rows: RowFactory[Found], statement: LiteralString, **parameters: Any) -> list[Found]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.cursor(row_factory=rows).execute(statement, parameters or None).fetchall()
