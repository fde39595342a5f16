"""Work that a pass finds without asking anybody: proofs that wait to be applied, and redrives that are due."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.daemon.schedule import Over, never
from idem.outbox.database.pool import AWAY, REFUSED
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import OWN_SOURCES, StoredProof
from idem.outbox.domain.outcomes import name, proof
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.observe import after_commit, daemon_events, telemetry
from idem.outbox.settle import decide
from idem.outbox.settle.gate import write
from idem.outbox.settle.key_rotation import is_undone
from idem.outbox.settle.locked_rows import FIRST_ID, is_gone, lock, read_locked
from idem.outbox.settle.proofs import compare, drop
from idem.outbox.settle.step_columns import CALL

WAITING = """
SELECT DISTINCT p.outbox_id
  FROM idem.proofs p LEFT JOIN idem.outbox o ON o.id = ANY (ARRAY[p.outbox_id])
 WHERE p.outbox_id > %(after)s AND p.outcome <> 'hint'
   AND (o.id IS NULL OR o.status <> 'claimed' OR o.claimed_until <= statement_timestamp())
 ORDER BY p.outbox_id LIMIT %(limit)s
"""


async def apply_stored(
    connection: AsyncConnection[Any], catalogue: Catalogue, *, limit: int, over: Over = never
) -> int:
    """Apply stored proofs of rows that no live claim holds; how many rows. Locked rows are left to the next pass.

    All of them are walked, `limit` at a time, so that rows which cannot be applied now hide no later ones. `over` ends
    the walk between two rows.
    """
    applied, after = 0, FIRST_ID
    while True:
        rows = await (await connection.execute(WAITING, {"limit": limit, "after": after})).fetchall()
        for (row_id,) in rows:
            if over():
                return applied
            try:
                applied += await _apply_row(connection, catalogue, row_id)
            except AWAY:
                raise
            except REFUSED:
                daemon_events.left_locked(f"stored proofs of row {row_id}")
            except Exception as error:  # one proof must never stop the others
                telemetry.broken("reconciler", error, f"applying a stored proof to row {row_id}")
        if len(rows) < limit:
            return applied
        after = rows[-1][0]


async def _apply_row(connection: AsyncConnection[Any], catalogue: Catalogue, row_id: UUID) -> int:
    async with after_commit.transaction(connection):
        found = await lock(connection, row_id, skip=True)
        if found is None:
            return await _compare_all(connection, row_id)
        if not found.stored or found.row.live:
            return 0
        terms = catalogue.cautious_of(found.row)
        valid = [p for p in found.stored if not p.undone]
        if not valid:
            for undone in found.stored:
                await drop(connection, row_id, undone, _evidence(undone))
            return 0
        # The newest speaks for itself: of what is open it says the most.
        *rest, first = valid
        change = decide.proven(found.row, first, rest, terms, _evidence(first))
        change = dataclasses.replace(change, folds=tuple(p.id for p in found.stored))
        if not await write(connection, [change]):
            return 0
    telemetry.proof_applied(found.row.intent_id, first.source, "applied")
    return 1


PROOFS_OF_A_ROW = """
SELECT p.id, p.source, p.outcome, p.reference, p.status, p.fields, p.http_status, p.attempt
  FROM idem.proofs p WHERE p.outbox_id = %(id)s AND p.outcome <> 'hint'
 ORDER BY p.stored_at + interval '0', p.id FOR UPDATE SKIP LOCKED
"""


async def _compare_all(connection: AsyncConnection[Any], row_id: UUID) -> int:
    if not await is_gone(connection, row_id):
        return 0
    waiting = await (await connection.execute(PROOFS_OF_A_ROW, {"id": row_id})).fetchall()
    for key, source, outcome, reference, status, fields, http_status, attempt in waiting:
        stored = StoredProof(key, source, proof(outcome, reference, status, fields), None, http_status, attempt)
        if source in OWN_SOURCES and attempt is not None and await is_undone(connection, row_id, attempt):
            await drop(connection, row_id, stored, _evidence(stored))
            continue
        applied = await compare(connection, row_id, stored, _evidence(stored))
        telemetry.proof_applied(None, source, applied)
    return len(waiting)


def _evidence(stored: StoredProof) -> Evidence:
    return Evidence(stored.source, "stored_proof", name(stored.proof), reference=stored.proof.reference)


DUE_REDRIVES = f"""
SELECT o.id FROM idem.outbox o
 WHERE o.id = ANY (ARRAY(SELECT c.id FROM idem.outbox c
                          WHERE c.redrive_at <= statement_timestamp()
                            AND ({CALL}, c.provider) IN (
                                    SELECT * FROM unnest(%(calls)s::text[], %(providers)s::text[]))
                            AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id LIMIT 1) IS NULL
                          ORDER BY c.redrive_at LIMIT %(limit)s))
   AND CASE WHEN o.status = 'held' THEN o.redrive_at <= statement_timestamp() END
 ORDER BY o.id FOR UPDATE SKIP LOCKED
"""  # noqa: S608


async def redrive(connection: AsyncConnection[Any], catalogue: Catalogue, *, limit: int) -> int:
    """Put rows whose automatic redrive is due back to work, under the same provider key; how many.

    Rows that this process cannot redrive are not picked, or the first of them would hide all others (IB-022): those of
    operations that it does not know, and those whose operation goes to another provider now: no worker sends them.
    """
    known = catalogue.known_calls
    wanted = {"limit": limit, "calls": [each.call for each in known], "providers": [each.provider for each in known]}
    if not await _due(connection, wanted):
        return 0  # as nearly always: it needs no transaction
    async with after_commit.transaction(connection):
        ids = await _due(connection, wanted)
        changes: list[Change] = []
        for found in await read_locked(connection, ids):
            terms = catalogue.of(found.row)
            if terms is not None and not found.stored:
                changes.append(decide.redriven(found.row, Evidence("reconciler", "redrive"), terms))
        return len(await write(connection, changes))


async def _due(connection: AsyncConnection[Any], wanted: Mapping[str, Any]) -> list[UUID]:
    return [r[0] for r in await (await connection.execute(DUE_REDRIVES, wanted)).fetchall()]
