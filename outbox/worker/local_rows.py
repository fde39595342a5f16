"""The rows of local steps: taken, locked for a turn, and read under that lock."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection
from sqlalchemy import Connection

from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import OutboxRow, outbox_row
from idem.outbox.domain.terms import Terms
from idem.outbox.settle.doubted_rows import C_IS_LISTED
from idem.outbox.settle.locked_rows import LOCK_OR_SKIP, READ


@dataclass(frozen=True, slots=True)
class DueStep:
    """The row of a local step that this process has taken, by the name of its call.

    `taken`: how often it was taken without an end that is on record, this time included.
    """

    call: str
    id: UUID
    intent: UUID
    taken: int


def local_terms(catalogue: Catalogue) -> dict[str, Terms]:
    """The local steps that this process knows, by the names of their calls."""
    return {
        step.call: Terms(catalogue.providers[step.provider].contract, step)
        for operation in catalogue.operations.values()
        for step in operation.local_steps
    }


RUNNABLE = f"""
    c.status = 'unfrozen' AND c.provider = 'local' AND c.start_before > statement_timestamp()
              AND NOT {C_IS_LISTED}
              AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)"""
AGAIN: Final = 2.0
"""Seconds after which a step that was taken is due again, unless its turn has locked it by then."""

# It counts in the row before the function runs: a function that kills its process is not run for ever.
TAKE = f"""
WITH due AS MATERIALIZED (
    SELECT f.operation || ' ' || f.step AS call, w.id
      FROM unnest(%(operations)s::text[], %(steps)s::text[], %(limits)s::integer[]) AS f (operation, step, most)
     CROSS JOIN LATERAL (
           SELECT c.id FROM idem.outbox c
            WHERE {RUNNABLE}
              AND c.operation = f.operation AND c.step_name = f.step AND c.available_at <= statement_timestamp()
              AND c.id <> ALL (%(running)s::uuid[])
            ORDER BY c.available_at LIMIT f.most FOR UPDATE OF c SKIP LOCKED) AS w
)
UPDATE idem.outbox o
   SET sweeps = o.sweeps + 1, available_at = statement_timestamp() + make_interval(secs => %(again)s)
  FROM due d WHERE o.id = ANY (ARRAY(SELECT id FROM due)) AND o.id = d.id
RETURNING d.call, o.id, o.intent_id, o.sweeps
"""  # noqa: S608


async def take(
    connection: AsyncConnection[Any], catalogue: Catalogue, rooms: Mapping[str, int], running: Collection[UUID]
) -> list[DueStep]:
    """Take rows that are due: of each step at most so many, and none of those that run here. Leaves nothing locked."""
    if not rooms:
        return []
    names = [call.split(" ", 1) for call in rooms]
    cursor = records(connection)
    await cursor.execute(
        TAKE,
        {
            "operations": [operation for operation, _ in names], "steps": [step for _, step in names],
            "limits": list(rooms.values()), "environment": catalogue.environment, "running": list(running),
            "again": AGAIN,
        },
    )  # fmt: skip
    return [DueStep(row.call, row.id, row.intent_id, row.sweeps) for row in await cursor.fetchall()]


GIVE_BACK = """
UPDATE idem.outbox SET sweeps = sweeps - 1, available_at = statement_timestamp()
 WHERE id = (SELECT o.id FROM idem.outbox o WHERE o.id = %(id)s FOR UPDATE SKIP LOCKED)
   AND CASE WHEN status = 'unfrozen' THEN sweeps = %(taken)s END
"""


async def give_back(connection: AsyncConnection[Any], step: DueStep) -> None:
    """The function of a taken row was not run: another session holds something of it, or the database was away."""
    await connection.execute(GIVE_BACK, {"id": step.id, "taken": step.taken})


@dataclass(frozen=True, slots=True)
class LockedStep:
    """The row of a local step under the lock of its turn. `written`: the params as JSON text."""

    row: OutboxRow
    written: str


LOCK_DUE = f"""
SELECT (SELECT n.params::text FROM idem.intents n WHERE n.id = c.intent_id) AS written,
       pg_backend_pid() AS backend, pg_current_xact_id()::text AS transaction
  FROM idem.outbox c
 WHERE c.id = %(id)s AND c.sweeps = %(taken)s AND {RUNNABLE}
   FOR UPDATE OF c SKIP LOCKED
"""  # noqa: S608


def lock(connection: Connection, row_id: UUID, taken: int, environment: str) -> tuple[LockedStep, int, str] | None:
    """Lock a taken row for the rest of the transaction, with all that its end writes, and read it; with the
    server process and the transaction that have it.

    None: another process has taken it since, or another session holds it, its key, its intent or an open entry of it.
    What the end writes is locked now, because a function that has run must not have run in vain.
    """
    found = connection.exec_driver_sql(
        LOCK_DUE, {"id": row_id, "taken": taken, "environment": environment}
    ).one_or_none()
    if found is None or connection.exec_driver_sql(LOCK_OR_SKIP, {"id": row_id}).one_or_none() is None:
        return None
    row = outbox_row(connection.exec_driver_sql(READ, {"ids": [row_id]}).one())
    return LockedStep(row, found.written), found.backend, found.transaction


LABEL = "UPDATE idem.intents SET label = %(label)s WHERE id = %(intent)s AND label IS NULL"


def label(connection: Connection, row: OutboxRow, said: str) -> None:
    """Keep the label of an intent that was accepted by SQL."""
    connection.exec_driver_sql(LABEL, {"intent": row.intent_id, "label": said})


SAME = "SELECT pg_current_xact_id_if_assigned()::text = %(transaction)s"


def is_same(connection: Connection, transaction: str) -> bool:
    """Whether the transaction is still the one in which the row was locked."""
    return connection.exec_driver_sql(SAME, {"transaction": transaction}).scalar() is True
