"""An intent's open row for an operator's decision: locked, with the facts that the guards need."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.errors import DeadlockDetected, LockNotAvailable

from idem.outbox.database.pool import records
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.states import KeyState
from idem.outbox.observe import after_commit
from idem.outbox.operator import dead_letters
from idem.outbox.operator.snapshot import Snapshot
from idem.outbox.settle import doubted_rows
from idem.outbox.settle.locked_rows import lock, read_locked
from idem.outbox.values.errors import OperatorRefused


@asynccontextmanager
async def lock_intent(
    connection: AsyncConnection[Any], intent: UUID, version: int | None, by: str, reason: str
) -> AsyncIterator[Snapshot]:
    """The intent's open row, locked until the end of the block, which is one transaction.

    Raises OperatorRefused if it has ended, has another `version`, is locked by another session, or `by` or `reason` is
    empty.
    """
    dead_letters.check_named(by, reason)
    try:
        async with after_commit.transaction(connection):
            row = await _row_id(connection, intent)
            if row is None:
                raise OperatorRefused(f"intent {intent}: {why_ended(await state(connection, intent))}")
            found = await locked(connection, row, intent)
            if version is not None and found.row.version != version:
                raise OperatorRefused(
                    f"intent {intent} changed after you read it (version {found.row.version}, not {version}; it is "
                    f"{found.row.state} now): read it again, then decide"
                )
            yield found
    except (LockNotAvailable, DeadlockDetected) as error:
        raise OperatorRefused(
            f"intent {intent} is locked by another transaction (the client's, or a settlement). Nothing was changed; "
            "run the command again"
        ) from error


async def locked(connection: AsyncConnection[Any], row: UUID, intent: UUID) -> Snapshot:
    """The row's snapshot under its lock, in the caller's transaction. Raises OperatorRefused if it was settled just
    now, or if recovery must still doubt it.
    """
    found = await lock(connection, row)
    if found is None:
        raise OperatorRefused(f"intent {intent} was settled while you were deciding: run the command again")
    if await doubted_rows.is_listed(connection, row):
        raise OperatorRefused(
            f"intent {intent}: commits of this database were lost, and recovery has not yet handled this row. Nothing "
            "was changed; the sweeper handles it as soon as it runs and no other session locks the row. Run the "
            "command again after that"
        )
    return await _snapshot(connection, found)


async def snapshot(connection: AsyncConnection[Any], intent: UUID) -> Snapshot | None:
    """An intent's snapshot without a lock, for a preview; None without an open row. Raises OperatorRefused for no such
    intent.
    """
    row = await _row_id(connection, intent)
    found = next(iter(await read_locked(connection, [row])), None) if row is not None else None
    return await _snapshot(connection, found) if found is not None else None


FACTS = """
SELECT o.inline, extract(epoch FROM o.claimed_until - statement_timestamp())::float8 AS lease_left,
       (SELECT k.state FROM idem.idempotency_keys k
         WHERE k.tenant_id = n.tenant_id AND k.operation = n.operation AND k.idempotency_key = n.idempotency_key
           AND k.intent_id = n.id) AS key_state,
       ARRAY(SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id AND p.outcome = 'hint') AS hints,
       idem.memory_age(coalesce(idem.earlier(o.first_sent_at, o.doubted_since), o.denied_sent_at,
                                least(o.imported_sent_at, n.created_at)), NULL) AS memory_age,
       EXISTS (SELECT FROM idem.dead_letters d
                WHERE d.intent_id = n.id AND d.reason = 'rejected' AND d.resolved_at IS NULL) AS refused_as_it_is,
       o.denied_sent_at IS NOT NULL AS operator_said_not_sent, r.method, r.path, r.headers, r.body
  FROM idem.outbox o JOIN idem.intents n ON n.id = ANY (ARRAY[o.intent_id])
  LEFT JOIN idem.requests r ON r.outbox_id = ANY (ARRAY[o.id]) AND r.generation = o.generation
 WHERE o.id = %(id)s
"""


async def _snapshot(connection: AsyncConnection[Any], found: Any) -> Snapshot:
    facts = await (await records(connection).execute(FACTS, {"id": found.row.id})).fetchone()
    if facts is None:
        raise OperatorRefused("the intent was settled while you were deciding: run the command again")
    known = facts._asdict()
    method, path, headers, body = (known.pop(name) for name in ("method", "path", "headers", "body"))
    request = None if method is None else FrozenRequest(method, path, headers, bytes(body))
    return Snapshot(found.row, found.stored, **{**known, "hints": tuple(facts.hints)}, request=request)


ROW_OF_INTENT = """
SELECT o.id FROM idem.intents n LEFT JOIN idem.outbox o ON o.intent_id = ANY (ARRAY[n.id]) WHERE n.id = %(intent)s
"""


async def _row_id(connection: AsyncConnection[Any], intent: UUID) -> UUID | None:
    row = await (await connection.execute(ROW_OF_INTENT, {"intent": intent})).fetchone()
    if row is None:
        raise no_such(intent)
    return row[0] if row[0] is None else UUID(str(row[0]))


STATE = "SELECT state FROM idem.intents WHERE id = %(intent)s"


async def state(connection: AsyncConnection[Any], intent: UUID) -> KeyState:
    """The state of an intent that exists."""
    row = await (await connection.execute(STATE, {"intent": intent})).fetchone()
    assert row is not None  # intents are never deleted
    return KeyState(row[0])


def why_ended(state: KeyState) -> str:
    """Why nothing can be decided about an intent without an open row."""
    if state is KeyState.FAILED_RETRYABLE:
        return (
            f"it stays {state}: nothing happened, and its key has expired, so idem no longer sends it. If the effect "
            "is still wanted, accept it with a new key"
        )
    return f"it is already {state}, and its answer never changes"


def no_such(intent: UUID) -> OperatorRefused:
    """The message for an intent that does not exist."""
    return OperatorRefused(f"intent {intent} does not exist in this database: `idem intents list` shows the intents")
