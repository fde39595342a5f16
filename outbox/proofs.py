"""Single rows under their lock: reading one with its stored proofs, applying a proof or storing it for later.

The batch path of the worker decides without reading; whatever does not fit there comes here, one by one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox import storable
from idem.outbox.change import Change, Evidence, Letter, Row, StoredProof
from idem.outbox.database import records
from idem.outbox.decide import Terms, disagreement, proven
from idem.outbox.operation import Answer
from idem.outbox.outcomes import Pending, Proof, Refused, Succeeded, name, proof
from idem.outbox.settle import write
from idem.outbox.states import KeyState, OutboxStatus

Applied: TypeAlias = Literal["applied", "stored", "agrees", "conflict", "lost"]
"""What became of a proof. lost: there is no such row and no such intent (a foreign key of the provider's)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A row under its lock, with the proofs that wait for it."""

    row: Row
    stored: tuple[StoredProof, ...]


LOCK = "SELECT o.id FROM idem.outbox o WHERE o.id = %(id)s FOR UPDATE"
LOCK_OR_SKIP = LOCK + " SKIP LOCKED"
READ = """
SELECT o.id, o.intent_id, o.operation, o.provider, o.account, o.status, n.state, o.claim_token AS token, o.attempt,
       o.provider_key::text AS provider_key, o.step, n.version, o.redrives, o.sweeps, o.looks, o.absents, o.misses,
       o.marks_start, o.claimed_by AS holder, o.provider_reference AS reference,
       coalesce(o.status = 'claimed' AND o.claimed_until > statement_timestamp(), false) AS live,
       o.started_at IS NOT NULL AS started,
       extract(epoch FROM o.start_before - statement_timestamp())::float8 AS start_left,
       extract(epoch FROM o.quiet_after - statement_timestamp())::float8 AS quiet_left,
       extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS status_age,
       EXISTS (SELECT FROM idem.daemons d
                WHERE d.id = o.claimed_by
                  AND (d.ended_at IS NOT NULL
                       OR (d.seen_at > o.claimed_until AND NOT o.claim_token = ANY (d.tokens)))) AS holder_known,
       EXISTS (SELECT FROM idem.idempotency_keys k
                WHERE k.tenant_id = n.tenant_id AND k.operation = n.operation
                  AND k.idempotency_key = n.idempotency_key AND k.intent_id <> n.id) AS key_used_anew
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.id = %(id)s
"""
STORED = """
SELECT p.id, p.source, p.outcome, p.reference, p.status, p.fields, p.http_status, p.attempt,
       p.answer_status, p.answer_headers, p.answer_body
  FROM idem.proofs p WHERE p.outbox_id = %(id)s ORDER BY p.stored_at, p.id
"""


async def lock(connection: AsyncConnection[Any], row_id: UUID, *, skip: bool = False) -> Found | None:
    """Lock a row for the rest of the transaction and read it with a snapshot taken after the lock.

    None: the row is gone, or (`skip`) somebody else holds it.
    """
    locked = await connection.execute(LOCK_OR_SKIP if skip else LOCK, {"id": row_id})
    if await locked.fetchone() is None:
        return None
    cursor = records(connection)
    read = await (await cursor.execute(READ, {"id": row_id})).fetchone()
    if read is None:
        return None
    row = Row(**{**read._asdict(), "status": OutboxStatus(read.status), "state": KeyState(read.state)})
    stored = await (await cursor.execute(STORED, {"id": row_id})).fetchall()
    return Found(row, tuple(_stored(record) for record in stored))


def _stored(record: Any) -> StoredProof:
    answer = None
    if record.answer_status is not None:
        answer = Answer(record.answer_status, bytes(record.answer_body), record.answer_headers)
    return StoredProof(
        id=record.id,
        source=record.source,
        proof=proof(record.outcome, record.reference, record.status, record.fields),
        answer=answer,
        http_status=record.http_status,
        attempt=record.attempt,
    )


async def apply(
    connection: AsyncConnection[Any],
    row_id: UUID,
    found: StoredProof,
    evidence: Evidence,
    terms: Terms,
    *,
    letters: tuple[Letter, ...] = (),
    wait: bool = True,
) -> Applied:
    """Apply a proof in the transaction that stores it, under the row's lock (one transaction of its own).

    A live claim, or a row that is locked while `wait` is False: it is stored as an unapplied proof, which needs no
    lock. A step that is already done is only compared.
    """
    async with connection.transaction():
        held = await lock(connection, row_id, skip=not wait)
        if held is not None and not held.row.live:
            change = proven(held.row, found, _others(held, found), terms, evidence)
            change = _with(change, letters, found)
            if await write(connection, [change]):
                return "applied"
        elif held is None and await _is_gone(connection, row_id):
            return await compare(connection, row_id, found, evidence)
        return await store(connection, row_id, found, evidence)


async def change_one(
    connection: AsyncConnection[Any], row_id: UUID, make: Callable[[Found], Change | None], *, skip: bool = False
) -> Change | None:
    """Lock one row, let `make` decide from what it is now, and write that. None: gone, locked, or nothing to do."""
    async with connection.transaction():
        held = await lock(connection, row_id, skip=skip)
        change = make(held) if held is not None else None
        if change is None:
            return None
        return change if await write(connection, [change]) else None


def _others(held: Found, found: StoredProof) -> tuple[StoredProof, ...]:
    return tuple(p for p in held.stored if p.id != found.id)


def _with(change: Change, letters: tuple[Letter, ...], found: StoredProof) -> Change:
    return dataclasses.replace(change, letters=(*change.letters, *letters), folds=(*change.folds, found.id))


IS_GONE = "SELECT NOT EXISTS (SELECT FROM idem.outbox WHERE id = %(id)s)"


async def _is_gone(connection: AsyncConnection[Any], row_id: UUID) -> bool:
    record = await (await connection.execute(IS_GONE, {"id": row_id})).fetchone()
    return bool(record and record[0])


STORE = """
INSERT INTO idem.proofs (id, outbox_id, intent_id, step, source, attempt, outcome, reference, status, fields,
                         http_status, answer_status, answer_headers, answer_body)
SELECT %(id)s, r.outbox_id, r.intent_id, r.step, %(source)s, %(attempt)s, %(outcome)s, %(reference)s, %(status)s,
       %(fields)s::jsonb, %(http_status)s, %(answer_status)s, %(answer_headers)s::jsonb, %(answer_body)s
  FROM idem.requests r WHERE r.outbox_id = %(row)s ORDER BY r.generation DESC LIMIT 1
    ON CONFLICT DO NOTHING RETURNING intent_id
"""


async def store(connection: AsyncConnection[Any], row_id: UUID, found: StoredProof, evidence: Evidence) -> Applied:
    """Store a proof that cannot be applied now. Needs no lock on the outbox row."""
    answer = found.answer
    stored = await connection.execute(
        STORE,
        {
            "id": found.id,
            "row": row_id,
            "source": found.source,
            "attempt": found.attempt,
            "outcome": name(found.proof),
            "reference": storable.text(found.proof.reference, 500) if found.proof.reference is not None else None,
            "status": storable.text(found.proof.status, 100) if found.proof.status is not None else None,
            "fields": json.dumps(storable.fields(found.proof.fields)),
            "http_status": found.http_status,
            "answer_status": answer.status if answer else None,
            "answer_headers": json.dumps(dict(answer.headers)) if answer else None,
            "answer_body": answer.body if answer else None,
        },
    )
    if await stored.fetchone() is None:
        return "lost"
    await note(connection, row_id, evidence, kind=f"{evidence.kind}_stored", token=found.id, attempt=found.attempt)
    return "stored"


DONE = """
SELECT n.id, n.state, n.outcome, n.provider_reference
  FROM idem.requests r JOIN idem.intents n ON n.id = r.intent_id
 WHERE r.outbox_id = %(row)s ORDER BY r.generation DESC LIMIT 1
"""
BURY = """
INSERT INTO idem.dead_letters AS d (intent_id, reason, details) VALUES (%(intent)s, %(reason)s, %(details)s::jsonb)
    ON CONFLICT (intent_id, reason) WHERE resolved_at IS NULL DO UPDATE SET seen = d.seen + 1
"""
CORRECT = """
INSERT INTO idem.events (aggregateid, number, type, payload)
SELECT %(intent)s, 1 + coalesce(max(e.number), 0), 'corrected', %(details)s::jsonb
  FROM idem.events e WHERE e.aggregateid = %(intent)s
"""
DROP = "DELETE FROM idem.proofs WHERE id = %(id)s"


async def compare(connection: AsyncConnection[Any], row_id: UUID, found: StoredProof, evidence: Evidence) -> Applied:
    """Hold a proof against a step that is already done. A contradiction never overwrites an answer (P4)."""
    cursor = records(connection)
    done = await (await cursor.execute(DONE, {"row": row_id})).fetchone()
    await connection.execute(DROP, {"id": found.id})
    if done is None:
        return "lost"
    await note(connection, row_id, evidence, kind=f"{evidence.kind}_compared", token=found.id, attempt=found.attempt)
    known: Proof | None = None
    match done.outcome:
        case "succeeded":
            known = Succeeded(done.provider_reference)
        case "refused" | "cancelled":
            # Cancelled means that nothing happened: any object there contradicts it, as it contradicts a refusal.
            known = Refused(done.provider_reference)
    happened = isinstance(found.proof, Pending | Succeeded)
    compared = Succeeded(found.proof.reference) if happened and done.outcome == "cancelled" else found.proof
    letter = disagreement(known, compared) if known is not None else None
    if letter is None:
        return "agrees"
    details = json.dumps(storable.fields(letter.details))
    await connection.execute(BURY, {"intent": done.id, "reason": letter.reason, "details": details})
    await connection.execute(CORRECT, {"intent": done.id, "details": details})
    return "conflict"


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
            "details": json.dumps(storable.fields({k: v for k, v in details.items() if v is not None})),
        },
    )
