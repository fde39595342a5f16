"""Every open row of a database that lost commits is doubted: what may still be sent, for how long, and what must not.

A queued or resting row becomes `unknown`, unless a second send is harmless: then it stays as it is, with the moment
from which the provider's memory counts (`window`). What is claimed or unknown already keeps its place, and what was
known about it counts anew.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox import decide
from idem.outbox.catalogue import LONGEST_FLIGHT, Catalogue
from idem.outbox.change import Change, Evidence, Row
from idem.outbox.contract import Contract
from idem.outbox.database import records
from idem.outbox.errors import StoreUnavailable
from idem.outbox.recovery import window
from idem.outbox.rows import FIRST_ID, read_locked
from idem.outbox.settle import write
from idem.outbox.states import OutboxStatus

BATCH = 500
AT_REST = frozenset({OutboxStatus.PENDING, OutboxStatus.WAITING, OutboxStatus.UNFROZEN, OutboxStatus.HELD})


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What a quarantine did. `unknown`: rows that became unknown. `left`: rows that may still be sent, because a
    second send is harmless; `left_for`: seconds until the last of them may not any more, None where none was left.
    `open`: rows that were claimed, unknown or awaited already."""

    unknown: int = 0
    left: int = 0
    left_for: float | None = None
    open: int = 0


NOTHING = Quarantined()

HELD: Final = (
    "commits of this database were lost, and {count} rows cannot be doubted, because another session holds their key, "
    "intent or dead letter (the first is outbox row {first}): nothing was changed. Find that session in "
    "pg_stat_activity (its transaction stays open) and end it, then try again; a daemon tries again by itself"
)

QUEUED = """
SELECT o.id, idem.memory_age(coalesce(o.word_since, least(o.imported_sent_at, n.created_at)), NULL) AS age
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.id > %(after)s AND o.status IN ('pending', 'waiting', 'unfrozen', 'held')
 ORDER BY o.id LIMIT %(limit)s FOR UPDATE OF o
"""
# A lost claim, replay or cancel may still be under way: nothing that was seen before counts towards a verdict, and
# the quiet time begins anew. The claim may have been kept and the commit of its start mark lost, so "no mark" proves
# nothing any more. Subqueries that give one value, because a join would read the ledger whole.
DOUBT_OPEN = """
WITH doubted AS (
    UPDATE idem.outbox o
       SET doubted_since = coalesce(o.doubted_since, o.first_sent_at, o.word_since, least(o.imported_sent_at,
                               (SELECT n.created_at FROM idem.intents n WHERE n.id = o.intent_id))),
           quiet_after   = greatest(o.quiet_after, statement_timestamp() + make_interval(secs =>
                               coalesce((%(quiet)s::jsonb ->> o.provider)::float8, %(longest)s::float8))),
           absents       = 0,
           started_at    = CASE WHEN o.status = 'claimed' AND o.marks_start
                                THEN coalesce(o.started_at, statement_timestamp()) ELSE o.started_at END
     WHERE o.status IN ('claimed', 'unknown', 'awaiting')
    RETURNING o.id, o.intent_id, o.step, o.attempt, o.status,
              (SELECT n.state FROM idem.intents n WHERE n.id = o.intent_id) AS state
)
INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, from_state, to_state, from_status,
                           to_status, details)
SELECT d.intent_id, d.id, d.step, d.attempt, 'recovery', 'database_doubted', d.state, d.state, d.status, d.status,
       %(details)s::jsonb
  FROM doubted d
"""


async def quarantine(
    connection: AsyncConnection[Any], catalogue: Catalogue, why: str, *, by: str = "daemon"
) -> Quarantined:
    """Doubt every open row: it may have been sent by commits that the database has forgotten.

    Runs inside the caller's transaction. Harmless is a second send where the contract says so, and the row is younger
    than the replay window. What was doubted before keeps the earlier moment.

    Raises StoreUnavailable where a row could not be doubted, because another session holds its key, its intent or an
    open dead letter of it: the caller's transaction must roll back, or that row would be sent as if nothing was lost.
    """
    details = {"why": why, "by": by}
    opened = await connection.execute(
        DOUBT_OPEN,
        {
            "quiet": json.dumps({name: _quiet(p.contract) for name, p in catalogue.providers.items()}),
            "longest": LONGEST_FLIGHT + _quiet(Contract("")),
            "details": json.dumps(details),
        },
    )
    found, after = Quarantined(open=opened.rowcount), FIRST_ID
    while True:
        cursor = records(connection)
        queued = await (await cursor.execute(QUEUED, {"after": after, "limit": BATCH})).fetchall()
        if not queued:
            return found
        after = queued[-1].id
        ages = {record.id: record.age for record in queued}
        unknown: list[Change] = []
        left: list[Change] = []
        times: list[float] = []
        for each in await read_locked(connection, list(ages)):
            row = each.row
            terms = catalogue.cautious(row.operation, row.provider)
            age = max(ages[row.id], row.doubted_for or 0.0)
            time_left = window.time_left(dataclasses.replace(row, doubted_for=age, memory_age=age), terms)
            assert time_left is not None
            if terms.known and time_left > 0:
                left.append(_left(row, terms.contract, details))
                times.append(time_left)
            else:
                unknown.append(
                    decide.database_changed(row, Evidence("recovery", "database_changed", details=details), terms)
                )
        written = await write(connection, unknown) | await write(connection, left)
        if held := [row_id for row_id in ages if row_id not in written]:
            raise StoreUnavailable(HELD.format(count=len(held), first=held[0]))
        found = Quarantined(
            found.unknown + len(unknown),
            found.left + len(left),
            max([*times, *([] if found.left_for is None else [found.left_for])], default=None),
            found.open,
        )


def _left(row: Row, contract: Contract, details: dict[str, str]) -> Change:
    evidence = Evidence("recovery", "database_doubted", details=details)
    return Change(
        row.id, row.token, row.attempt, row.status, row.state, evidence, quiet_for=_quiet(contract), doubt="begins"
    )


def _quiet(contract: Contract) -> float:
    return contract.flight_limit + contract.pause_allowance
