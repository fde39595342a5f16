"""Rows that wait to be rendered for an operation that is known here, by a definition that does not have their call any
more: its step was removed or renamed, or one call became several. Nothing renders them, so they are held, with a dead
letter that says so. Their flow keeps its order of steps: none is skipped, and none is sent again.

While a new definition is rolled out, old processes see rows of steps that they do not know, and new ones rows that old
ones still render. So a row is held only if no process has rendered it for an hour; `idem doctor` names it at once.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.states import KeyState, OutboxStatus, Reason
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.settle.doubted_rows import C_IS_LISTED
from idem.outbox.settle.endings import at_rest
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import read_locked
from idem.outbox.settle.step_columns import CALL

WAIT: Final = timedelta(hours=1)
"""How long a row has waited when no process will render it. Much longer than a definition takes to be rolled out."""
BATCH: Final = 20


def _missing(where: str) -> str:
    # By the age in the index first: where rows are rendered, nothing is as old.
    return f"""
SELECT c.id FROM idem.outbox c
 WHERE c.status = 'unfrozen' AND {where}
   AND c.available_at <= statement_timestamp() - %(wait)s::interval AND c.start_before > statement_timestamp()
   AND c.operation = ANY (%(operations)s) AND {CALL} <> ALL (%(calls)s)
   AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id LIMIT 1) IS NULL
   AND NOT {C_IS_LISTED}
   AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)
 ORDER BY c.available_at
 LIMIT %(limit)s
   FOR UPDATE OF c SKIP LOCKED
"""  # noqa: S608


MISSING = _missing("c.provider <> 'local'")
MISSING_LOCAL = _missing("c.provider = 'local'")


async def hold(connection: AsyncConnection[Any], catalogue: Catalogue) -> int:
    """Hold up to a batch of these rows, in the caller's transaction; how many there were."""
    about = {
        "wait": WAIT,
        "operations": list(catalogue.operations),
        "environment": catalogue.environment,
        "limit": BATCH,
    }
    local = [step.call for operation in catalogue.operations.values() for step in operation.local_steps]
    # A step that was a call and is a function now, or the other way round, is not the one that the row waits for.
    calls = [each.call for each in catalogue.known_calls if each.kind == "provider" and each.call not in local]
    ids: list[UUID] = []
    for statement, known in ((MISSING, calls), (MISSING_LOCAL, local)):
        cursor = records(connection)
        await cursor.execute(statement, about | {"calls": known}, prepare=True)
        ids += [found.id for found in await cursor.fetchall()]
    rows = [found.row for found in await read_locked(connection, ids)] if ids else []
    written = await write(connection, [_held(row, catalogue) for row in rows]) if rows else []
    return len(written)


def _held(row: OutboxRow, catalogue: Catalogue) -> Change:
    here = [each.step.name for each in catalogue.operations[row.operation].steps if each.step is not None]
    said = said_of(row.operation, row.step_name, here)
    evidence = Evidence("worker", "unrenderable", seen=Seen(error="MissingStep", note=said))
    letter = DeadLetter(Reason.UNRENDERABLE, {"operation": row.operation, "error": "MissingStep", "note": said})
    change = Change(row.id, row.token, row.attempt, OutboxStatus.PENDING, KeyState.IN_PROGRESS, evidence, alone=True)
    return at_rest(change, row, catalogue.cautious_of(row), letter)


def said_of(operation: str, step: str | None, here: Sequence[str]) -> str:
    """Why nothing here renders such a row, and what to do, for people."""
    if step is None:
        now = f"has the steps {', '.join(here)}" if here else "makes no call of its own"
        what = f"it was accepted as one call, and operation {operation} now {now}"
    else:
        now = f"has the steps {', '.join(here)}" if here else "has no steps"
        what = f"it waits for its step {step}, and operation {operation} now {now}"
    return (
        f"{what}. Give daemons the definition with which it was accepted, then redrive it; or decide about the intent"
    )
