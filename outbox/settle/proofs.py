"""Single rows under their lock: reading one with its stored proofs, applying a proof or storing it for later.

The batch path of the worker decides without reading; whatever does not fit there comes here, one by one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.completion import is_open
from idem.outbox.domain.outcomes import Pending, Proof, Refused, Succeeded, name
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, Evidence, StoredProof
from idem.outbox.observe import after_commit
from idem.outbox.settle import key_rotation
from idem.outbox.settle.decide import proven
from idem.outbox.settle.endings import disagreement
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import Found, is_gone, lock, lock_soon
from idem.outbox.values import storable

Applied: TypeAlias = Literal["applied", "stored", "agrees", "later_fact", "conflict", "lost"]
"""What became of a proof. later_fact: the key was complete when the object existed, and now that has failed. lost:
there is no such row and no such intent (a foreign key of the provider's)."""


async def apply(
    connection: AsyncConnection[Any],
    row_id: UUID,
    found: StoredProof,
    evidence: Evidence,
    terms: Terms,
    *,
    letters: tuple[DeadLetter, ...] = (),
    wait: bool = True,
) -> Applied:
    """Apply a proof in the transaction that stores it, under the row's lock (one transaction of its own).

    A live claim, or a row that is still locked (`wait` False: that is locked now): it is stored as an unapplied
    proof, which needs no lock. A step that is already done is only compared.
    """
    async with after_commit.transaction(connection):
        held = await (lock_soon(connection, row_id) if wait else lock(connection, row_id, skip=True))
        if await _is_undone(connection, row_id, found, evidence):
            await note(
                connection, row_id, evidence, kind=f"{evidence.kind}_undone", token=found.id, attempt=found.attempt
            )
            return "agrees"
        if held is not None and not held.row.live:
            change = proven(held.row, found, _others(held, found), terms, evidence)
            change = _with(change, letters, found)
            if await write(connection, [change]):
                return "applied"
        elif held is None and await is_gone(connection, row_id):
            return await compare(connection, row_id, found, evidence)
        return await store(connection, row_id, found, evidence)


async def _is_undone(connection: AsyncConnection[Any], row_id: UUID, found: StoredProof, evidence: Evidence) -> bool:
    # What we have seen ourselves before we had it cancelled, and report only now: it was true, and stands no more.
    ours = found.source in ("worker", "reconciler") and evidence.kind != "cancel" and found.attempt is not None
    if not ours:
        return False
    assert found.attempt is not None
    return await key_rotation.is_undone(connection, row_id, found.attempt)


async def change_one(
    connection: AsyncConnection[Any], row_id: UUID, make: Callable[[Found], Change | None]
) -> Change | None:
    """Lock one row, let `make` decide from what it is now, and write that. None: gone, locked, or nothing to do."""
    async with after_commit.transaction(connection):
        held = await lock_soon(connection, row_id)
        change = make(held) if held is not None else None
        if change is None:
            return None
        return change if await write(connection, [change]) else None


def _others(held: Found, found: StoredProof) -> tuple[StoredProof, ...]:
    return tuple(p for p in held.stored if p.id != found.id)


def _with(change: Change, letters: tuple[DeadLetter, ...], found: StoredProof) -> Change:
    return dataclasses.replace(change, letters=(*change.letters, *letters), folds=(*change.folds, found.id))


STORE = """
INSERT INTO idem.proofs (id, outbox_id, intent_id, step, source, attempt, outcome, reference, status, fields,
                         http_status, answer_status, answer_headers, answer_body, interim)
SELECT %(id)s, r.outbox_id, r.intent_id, r.step, %(source)s, %(attempt)s, %(outcome)s, %(reference)s, %(status)s,
       %(fields)s::jsonb, %(http_status)s, %(answer_status)s, %(answer_headers)s::jsonb, %(answer_body)s,
       %(interim)s::jsonb
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
            **_words(found.proof),
            "fields": _as_json(found.proof.fields),
            "http_status": found.http_status,
            "answer_status": answer.status if answer else None,
            "answer_headers": json.dumps(dict(answer.headers)) if answer else None,
            "answer_body": answer.body if answer else None,
            "interim": _as_json(found.interim),
        },
    )
    if await stored.fetchone() is None:
        return "lost"
    await note(connection, row_id, evidence, kind=f"{evidence.kind}_stored", token=found.id, attempt=found.attempt)
    return "stored"


def _words(proof: Proof) -> dict[str, str | None]:
    return {
        "reference": None if proof.reference is None else storable.text(proof.reference, 500),
        "status": None if proof.status is None else storable.text(proof.status, 100),
    }


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(storable.fields({"value": value})["value"])


DONE = """
SELECT n.id, n.state, n.provider_reference, n.object_end,
       CASE WHEN n.state = 'failed_retryable' AND NOT EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = n.id)
            THEN 'at_rest' ELSE n.outcome END AS outcome
  FROM idem.requests r JOIN idem.intents n ON n.id = r.intent_id
 WHERE r.outbox_id = %(row)s ORDER BY r.generation DESC LIMIT 1 FOR NO KEY UPDATE OF n
"""
BURY = """
INSERT INTO idem.dead_letters AS d (intent_id, reason, details) VALUES (%(intent)s, %(reason)s, %(details)s::jsonb)
    ON CONFLICT (intent_id, reason) WHERE resolved_at IS NULL DO UPDATE SET seen = d.seen + 1 RETURNING d.seen
"""
LATER = """
WITH known AS (
    UPDATE idem.intents n SET object_end = %(end)s WHERE n.id = %(intent)s
    RETURNING n.id, n.tenant_id, n.operation, n.state, n.provider_reference, n.label
)
INSERT INTO idem.events (aggregateid, number, type, payload)
SELECT k.id, e.number, 'later_fact',
       jsonb_build_object('intent', k.id, 'number', e.number, 'tenant', k.tenant_id, 'operation', k.operation,
                          'label', k.label, 'state', k.state, 'outcome', %(end)s::text,
                          'provider_reference', coalesce(%(reference)s::text, k.provider_reference),
                          'status', %(status)s::text, 'fields', %(fields)s::jsonb)
  FROM known k CROSS JOIN LATERAL (
       SELECT 1 + coalesce(max(v.number), 0) AS number FROM idem.events v WHERE v.aggregateid = k.id) AS e
"""
DROP = "DELETE FROM idem.proofs WHERE id = %(id)s"


async def drop(connection: AsyncConnection[Any], row_id: UUID, undone: StoredProof, evidence: Evidence) -> None:
    """Take away a stored proof of what a cancel has undone; only its evidence stays."""
    await connection.execute(DROP, {"id": undone.id})
    await note(connection, row_id, evidence, kind=f"{evidence.kind}_undone", token=undone.id, attempt=undone.attempt)


async def compare(connection: AsyncConnection[Any], row_id: UUID, found: StoredProof, evidence: Evidence) -> Applied:
    """Hold a proof against a step that is already done. A contradiction never overwrites an answer (P4).

    Where the key was complete when the object existed, the end of that object is no contradiction but a later fact,
    told once. Under the intent's lock, because there is no row any more that would order two of them and their events.
    """
    cursor = records(connection)
    done = await (await cursor.execute(DONE, {"row": row_id})).fetchone()
    await connection.execute(DROP, {"id": found.id})
    if done is None:
        return "lost"
    await note(connection, row_id, evidence, kind=f"{evidence.kind}_compared", token=found.id, attempt=found.attempt)
    known: Proof | None = None
    match done.outcome:
        case "succeeded":
            # An object may fail and succeed after that (another card): only its success is an end for good.
            known = Succeeded(done.provider_reference, interim=done.object_end in ("open", "refused"))
        case "refused" | "cancelled" | "at_rest":
            # Cancelled, or at rest until the row left, means that nothing happened: any object there contradicts it, as
            # it contradicts a refusal.
            known = Refused(done.provider_reference)
    happened = isinstance(found.proof, Pending | Succeeded)
    compared = (
        Succeeded(found.proof.reference) if happened and done.outcome in ("cancelled", "at_rest") else found.proof
    )
    letter = disagreement(known, compared) if known is not None else None
    if letter is None:
        if known is None or not is_open(known) or is_open(found.proof):
            return "agrees"
        if name(found.proof) != done.object_end:
            about = {"intent": done.id, "end": name(found.proof), "fields": _as_json(found.proof.fields)}
            await connection.execute(LATER, about | _words(found.proof))
        return "later_fact" if isinstance(found.proof, Refused) else "agrees"
    details = json.dumps(storable.fields(letter.details))
    buried = await connection.execute(BURY, {"intent": done.id, "reason": letter.reason, "details": details})
    if await buried.fetchone() == (1,):
        after_commit.emit(connection, partial(after_commit.dead_letter, done.id, letter.reason))
    await correct(connection, done.id, letter.details)
    return "conflict"


CORRECT = """
INSERT INTO idem.events (aggregateid, number, type, payload)
SELECT n.id, e.number, 'corrected',
       jsonb_build_object('intent', n.id, 'number', e.number, 'tenant', n.tenant_id, 'operation', n.operation,
                          'label', n.label, 'state', n.state, 'outcome', n.outcome,
                          'provider_reference', n.provider_reference, 'details', %(details)s::jsonb)
  FROM idem.intents n CROSS JOIN LATERAL (
       SELECT 1 + coalesce(max(v.number), 0) AS number FROM idem.events v WHERE v.aggregateid = n.id) AS e
 WHERE n.id = %(intent)s
"""


async def correct(connection: AsyncConnection[Any], intent: UUID, details: Mapping[str, Any]) -> None:
    """Tell whoever was told an end that something contradicts it. The caller holds the intent's lock."""
    said = json.dumps(storable.fields(details))
    await connection.execute(CORRECT, {"intent": intent, "details": said})


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
