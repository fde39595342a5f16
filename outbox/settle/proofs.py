"""Single rows under their lock: reading one with its stored proofs, applying a proof or storing it for later.

The batch path of the worker decides without reading; what does not fit there comes here, one by one.
"""

import dataclasses
import json
from collections.abc import Callable
from typing import Any, Literal, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.completion import is_open
from idem.outbox.domain.outbox_row import OWN_SOURCES, StoredProof
from idem.outbox.domain.outcomes import Pending, Proof, Refused, Succeeded, name
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.observe import after_commit
from idem.outbox.settle import key_rotation
from idem.outbox.settle.decide import proven
from idem.outbox.settle.done_steps import done_step, lock_flow, object_ended
from idem.outbox.settle.endings import disagreement
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import LockedRow, is_gone, lock, lock_soon
from idem.outbox.settle.record import bury, emit, note
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
    ours = found.source in OWN_SOURCES and evidence.kind != "cancel" and found.attempt is not None
    if not ours:
        return False
    assert found.attempt is not None
    return await key_rotation.is_undone(connection, row_id, found.attempt)


async def change_one(
    connection: AsyncConnection[Any], row_id: UUID, make: Callable[[LockedRow], Change | None]
) -> Change | None:
    """Lock one row, let `make` decide from what it is now, and write that. None: gone, locked, or nothing to do."""
    async with after_commit.transaction(connection):
        held = await lock_soon(connection, row_id)
        change = make(held) if held is not None else None
        if change is None:
            return None
        return change if await write(connection, [change]) else None


def _others(held: LockedRow, found: StoredProof) -> tuple[StoredProof, ...]:
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
SELECT n.id, NULL AS step, n.provider_reference, n.object_end,
       CASE WHEN n.state = 'failed_retryable' AND NOT EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = n.id)
            THEN 'at_rest' ELSE n.outcome END AS outcome
  FROM idem.requests r JOIN idem.intents n ON n.id = ANY (ARRAY[r.intent_id])
 WHERE r.outbox_id = %(row)s AND n.plan IS NULL ORDER BY r.generation DESC LIMIT 1 FOR NO KEY UPDATE OF n
"""
OBJECT_END = "UPDATE idem.intents SET object_end = %(end)s WHERE id = %(intent)s"
DROP = "DELETE FROM idem.proofs WHERE id = %(id)s"


async def drop(connection: AsyncConnection[Any], row_id: UUID, undone: StoredProof, evidence: Evidence) -> None:
    """Take away a stored proof of what a cancel has undone; only its evidence stays."""
    await connection.execute(DROP, {"id": undone.id})
    await note(connection, row_id, evidence, kind=f"{evidence.kind}_undone", token=undone.id, attempt=undone.attempt)


async def compare(connection: AsyncConnection[Any], row_id: UUID, found: StoredProof, evidence: Evidence) -> Applied:
    """Hold a proof against a step that is already done. A contradiction never overwrites an answer (P4).

    Where the key was complete when the object existed, the end of that object is a later fact and not a contradiction;
    it is emitted once. Under the intent's lock, because its row is gone, which would order two of them and their
    events. A step of a flow has an end of its own, and what is open of the flow is left alone (hazard 57); while
    another session holds that, the proof is stored.
    """
    cursor = records(connection)
    done = await (await cursor.execute(DONE, {"row": row_id})).fetchone()
    if done is None:
        if not await lock_flow(connection, row_id):
            await store(connection, row_id, found, evidence)
            return "stored"
        done = await done_step(connection, row_id)
    await connection.execute(DROP, {"id": found.id})
    if done is None:
        return "lost"
    await note(connection, row_id, evidence, kind=f"{evidence.kind}_compared", token=found.id, attempt=found.attempt)
    known: Proof | None = None
    match done.outcome:
        case "succeeded":
            # An object may fail and succeed after that (another card): only its success is an end for good.
            known = Succeeded(done.provider_reference, interim=done.object_end in ("open", "refused"))
        case "refused" | "cancelled" | "rejected" | "skipped" | "at_rest":
            # Cancelled, rejected, skipped, or at rest until the row left: nothing happened, so any object there
            # contradicts it, as it contradicts a refusal.
            known = Refused(done.provider_reference)
    happened = isinstance(found.proof, Pending | Succeeded)
    nothing = done.outcome in ("cancelled", "rejected", "skipped", "at_rest")
    compared = Succeeded(found.proof.reference) if happened and nothing else found.proof
    letter = disagreement(known, compared) if known is not None else None
    about = {} if done.step is None else {"step": done.step}
    if letter is None:
        if known is None or not is_open(known) or is_open(found.proof):
            return "agrees"
        if name(found.proof) != done.object_end:
            end, words = name(found.proof), _words(found.proof)
            if done.step is None:
                await connection.execute(OBJECT_END, {"intent": done.id, "end": end})
            else:
                await object_ended(connection, row_id, end)
            more = {"status": words["status"], "fields": found.proof.fields, **about}
            await emit(connection, done.id, "later_fact", more, outcome=end, reference=words["reference"])
        return "later_fact" if isinstance(found.proof, Refused) else "agrees"
    details = {**letter.details, **about}
    await bury(connection, done.id, letter.reason, details)
    await emit(connection, done.id, "corrected", {"details": details, **about})
    return "conflict"
