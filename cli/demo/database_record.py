"""The database at the end: everything that the proof reads, in one snapshot."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import class_row

from idem.outbox.database import session


@dataclass(frozen=True, slots=True)
class IntentRow:
    """An intent with its key and, if it has one, its open outbox row. `status` None: no row; `step`: the row's.

    Of a flow: `order` is what its calls name in their path, `answer_steps` what its stored answer says of its steps;
    it has no provider of its own.
    """

    id: str
    key: str
    operation: str
    provider: str | None
    state: str
    outcome: str | None
    reference: str | None
    key_state: str | None
    answer_status: int | None = None
    answer_headers: Mapping[str, str] | None = None
    answer_sha256: str | None = None
    status: str | None = None
    attempt: int | None = None
    step: int | None = None
    order: str = ""
    recovery_point: int = 0
    answer_steps: Mapping[str, str] | None = None

    @property
    def answer(self) -> tuple[int | None, str, str | None]:
        """The stored answer as a value comparable with what a client saw."""
        return self.answer_status, json.dumps(dict(self.answer_headers or {}), sort_keys=True), self.answer_sha256


@dataclass(frozen=True, slots=True)
class FrozenRow:
    """A frozen request: its bytes, its provider key, its intent and step."""

    intent: str
    provider: str
    provider_key: str
    body_sha256: str
    step: int = 1


@dataclass(frozen=True, slots=True)
class StepRow:
    """The end of a step of a flow."""

    intent: str
    step: int
    name: str
    outcome: str
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A row of evidence; times in seconds since the epoch."""

    intent: str
    id: str
    at: float
    source: str
    kind: str
    outcome: str | None = None
    attempt: int | None = None
    token: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    from_status: str | None = None
    to_status: str | None = None
    claimed_at: float | None = None
    claimed_until: float | None = None
    step: int = 1
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_change(self) -> bool:
        """Whether it records a change of state, not just a note."""
        return self.to_state is not None

    @property
    def begins_step(self) -> bool:
        """Whether it records the row of a flow's next step, which begins in the state of the end before it."""
        return self.kind == "begun"

    @property
    def ends_step(self) -> bool:
        """Whether it records the end of a step: its row is gone."""
        return self.is_change and self.from_status is not None and self.to_status is None

    def __str__(self) -> str:
        moved = f" {self.from_status}->{self.to_status or 'gone'}" if self.is_change else ""
        return f"{self.source} {self.kind}{f' {self.outcome}' if self.outcome else ''} #{self.attempt}{moved}"


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A dead letter."""

    intent: str | None
    reason: str
    at: float
    open: bool


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """The database's side of the proof."""

    intents: Sequence[IntentRow]
    requests: Sequence[FrozenRow]
    evidence: Sequence[EvidenceRow]
    letters: Sequence[DeadLetterRow]
    unapplied: Sequence[str] = ()
    """Intents with a proof that is not applied."""
    steps: Sequence[StepRow] = ()


INTENTS = """
SELECT n.id::text, n.idempotency_key AS key, n.operation, n.provider, n.state, n.outcome,
       n.provider_reference AS reference, k.state AS key_state, k.response_status AS answer_status,
       k.response_headers AS answer_headers, encode(sha256(k.response_body), 'hex') AS answer_sha256,
       o.status, o.attempt, o.step, n.params ->> 'order' AS "order", n.recovery_point,
       CASE WHEN n.plan IS NOT NULL THEN convert_from(k.response_body, 'UTF8')::jsonb -> 'steps' END AS answer_steps
  FROM idem.intents n
  LEFT JOIN idem.idempotency_keys k ON k.intent_id = n.id
  LEFT JOIN idem.outbox o ON o.intent_id = n.id
 ORDER BY n.id
"""
REQUESTS = """
SELECT intent_id::text AS intent, provider, provider_key::text, encode(sha256(body), 'hex') AS body_sha256, step
  FROM idem.requests ORDER BY outbox_id, generation
"""
EVIDENCE = """
SELECT intent_id::text AS intent, id::text, extract(epoch FROM at)::float8 AS at, source, kind, outcome, attempt,
       token::text, from_state, to_state, from_status, to_status,
       extract(epoch FROM claimed_at)::float8 AS claimed_at, extract(epoch FROM claimed_until)::float8 AS claimed_until,
       step, details
  FROM idem.evidence ORDER BY intent_id, id
"""
LETTERS = """
SELECT intent_id::text AS intent, reason, extract(epoch FROM created_at)::float8 AS at, resolved_at IS NULL AS open
  FROM idem.dead_letters ORDER BY created_at
"""
STEPS = """
SELECT intent_id::text AS intent, step, name, outcome, provider_reference AS reference
  FROM idem.steps ORDER BY intent_id, step
"""
UNAPPLIED = "SELECT DISTINCT intent_id::text FROM idem.proofs"


def read(url: str) -> DatabaseRecord:
    """Read all of it in one snapshot."""
    with session.connect_sync(url, name="idem demo") as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with connection.transaction():
            return DatabaseRecord(
                intents=connection.cursor(row_factory=class_row(IntentRow)).execute(INTENTS).fetchall(),
                requests=connection.cursor(row_factory=class_row(FrozenRow)).execute(REQUESTS).fetchall(),
                evidence=connection.cursor(row_factory=class_row(EvidenceRow)).execute(EVIDENCE).fetchall(),
                letters=connection.cursor(row_factory=class_row(DeadLetterRow)).execute(LETTERS).fetchall(),
                unapplied=[row[0] for row in connection.execute(UNAPPLIED).fetchall()],
                steps=connection.cursor(row_factory=class_row(StepRow)).execute(STEPS).fetchall(),
            )
