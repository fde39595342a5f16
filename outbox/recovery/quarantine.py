"""Doubts every open row of a database that lost commits, and decides which rows idem may still send, and for how long.

A queued or resting row becomes `unknown`, unless a second send is harmless: then it stays as it is, with the time from
which the provider's memory counts (`settle.replay_window`). A claimed or unknown row keeps its status, and what was
known about it no longer counts. First one statement lists every row (`doubts`); then the list is worked off. A row that
another session locks stays listed: no daemon sends or settles it before its turn.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from idem.outbox.calls import known_object
from idem.outbox.database import identity as identities
from idem.outbox.database.pool import REFUSED, records
from idem.outbox.domain.catalogue import LONGEST_FLIGHT, Catalogue
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.states import NOT_SENT_YET
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.observe import after_commit, daemon_events, telemetry
from idem.outbox.settle import decide, doubted_rows, replay_window
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import FIRST_ID, read_locked
from idem.outbox.settle.record import noted

BATCH = 500


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The result of a quarantine.

    `unknown`: rows that became unknown. `left`: rows that may still be sent, because a second send is harmless;
    `left_for`: seconds until that ends for the last of them, None without any. `open`: rows that were already claimed,
    unknown or awaiting. `waiting`: rows that another session locks, `first` of them by id: they stay listed.
    """

    unknown: int = 0
    left: int = 0
    left_for: float | None = None
    open: int = 0
    waiting: int = 0
    first: UUID | None = None

    def __add__(self, other: Quarantined) -> Quarantined:
        times = [each for each in (self.left_for, other.left_for) if each is not None]
        return Quarantined(
            self.unknown + other.unknown,
            self.left + other.left,
            max(times, default=None),
            self.open + other.open,
            self.waiting + other.waiting,
            self.first or other.first,
        )


NOTHING = Quarantined()


async def lost(connection: AsyncConnection[Any], catalogue: Catalogue, *, by: str, reason: str) -> Quarantined:
    """Apply an operator's statement that commits were lost: doubt every open row.

    The list and the statement commit together; if this process dies later, the sweeper works off the rest of the list.
    Raises what an unreachable database raises.
    """
    async with after_commit.transaction(connection):
        # A daemon that noticed the same change waits here, and then finds it done.
        await identities.known(connection, lock=True)
        await doubted_rows.list_open(connection, reason, by=by)
        await identities.adopt(connection, await identities.read(connection))
        await identities.spoken(connection, lost=True)
    return await work_off(connection, catalogue)


async def work_off(connection: AsyncConnection[Any], catalogue: Catalogue, *, until: float = math.inf) -> Quarantined:
    """Doubt every listed row that no other session locks; each page is its own transaction.

    A second send is harmless if the contract says so and the row is younger than the replay window. A row that was
    doubted before keeps the earlier time. No page begins after `until`, by the event loop's clock. Any number of
    processes may do this at once. Raises psycopg.Error if the database is unavailable.
    """
    found, after = NOTHING, FIRST_ID
    while asyncio.get_running_loop().time() < until and (
        ids := await doubted_rows.page(connection, after=after, limit=BATCH)
    ):
        after = ids[-1]
        try:
            found += await _page(connection, catalogue, ids)
        except psycopg.Error:
            if connection.closed:
                raise
            for each in ids:
                found += await _alone(connection, catalogue, each)
    if after == FIRST_ID:
        return found
    left = await doubted_rows.waiting(connection)
    return dataclasses.replace(found, waiting=left.rows, first=left.first)


async def _alone(connection: AsyncConnection[Any], catalogue: Catalogue, row: UUID) -> Quarantined:
    try:
        return await _page(connection, catalogue, [row])
    except psycopg.Error as error:
        if connection.closed:
            raise
        if isinstance(error, REFUSED):
            daemon_events.left_locked(f"outbox row {row}")
        else:
            telemetry.broken(
                "recovery", error, f"doubting outbox row {row}; it stays listed, and idem does not send it"
            )
        return NOTHING


# Lock the entry before the row: if the entry is gone, the row was worked off. It waits for no lock.
LOCK_LISTED = """
WITH listed AS MATERIALIZED (
    SELECT d.outbox_id, d.listed_at, d.details FROM idem.doubts d WHERE d.outbox_id = ANY (%(ids)s)
     ORDER BY d.outbox_id FOR UPDATE SKIP LOCKED
), locked AS MATERIALIZED (
    SELECT o.id, o.intent_id, o.imported_sent_at, o.denied_sent_at FROM idem.outbox o
     WHERE o.id = ANY (ARRAY(SELECT l.outbox_id FROM listed l)) ORDER BY o.id FOR UPDATE SKIP LOCKED
)
SELECT l.outbox_id AS id, k.id IS NOT NULL AS locked,
       l.details || jsonb_build_object('listed_at', l.listed_at) AS details,
       k.id IS NULL AND (SELECT o.id FROM idem.outbox o WHERE o.id = l.outbox_id) IS NULL AS gone,
       idem.memory_age(coalesce(k.denied_sent_at, least(k.imported_sent_at,
               (SELECT n.created_at FROM idem.intents n WHERE n.id = k.intent_id))), NULL) AS age
  FROM listed l LEFT JOIN locked k ON k.id = l.outbox_id
"""


async def _page(connection: AsyncConnection[Any], catalogue: Catalogue, ids: list[UUID]) -> Quarantined:
    async with after_commit.transaction(connection):
        listed = await (await records(connection).execute(LOCK_LISTED, {"ids": ids})).fetchall()
        details = {record.id: record.details for record in listed if record.locked}
        ages = {record.id: record.age for record in listed if record.locked}
        unknown: list[Change] = []
        left: dict[UUID, tuple[Change, float]] = {}
        live: list[UUID] = []
        for each in await read_locked(connection, list(details)):
            row = each.row
            if row.status not in NOT_SENT_YET:
                live.append(row.id)
                continue
            terms = catalogue.cautious_of(row)
            # A local step runs again, for its writes were lost too. The calls after it inherit its doubt.
            time_left = 0.0 if row.is_local_step else stays_for(row, ages[row.id], terms)
            if time_left is not None:
                left[row.id] = _left(row, terms.contract, details[row.id]), time_left
            else:
                evidence = Evidence("recovery", "database_changed", details=details[row.id])
                unknown.append(decide.database_changed(row, evidence, terms))
        opened = await _doubt_open(connection, catalogue, {row: details[row] for row in live})
        became = await write(connection, unknown)
        stayed = await write(connection, [change for change, _ in left.values()])
        await connection.execute(SENT_THEN, {"ids": [*opened, *became, *stayed], "near": known_object.NEAR})
        gone = [record.id for record in listed if record.gone]
        await doubted_rows.worked_off(connection, [*opened, *became, *stayed, *gone])
    return Quarantined(len(became), len(stayed), max((left[row][1] for row in stayed), default=None), len(opened))


def stays_for(row: OutboxRow, age: float, terms: Terms) -> float | None:
    """Seconds for which a queued or resting row may still be sent despite the doubt; None if it becomes unknown.

    `age`: seconds since the earliest time at which lost commits may have sent it.
    """
    age = max(age, row.doubted_for or 0.0)
    time_left = replay_window.time_left(dataclasses.replace(row, doubted_for=age, memory_age=age), terms)
    assert time_left is not None
    return time_left if terms.known and time_left > 0 else None


_DOUBTED = noted(
    "recovery", "database_doubted", "doubted d JOIN intents n ON n.id = d.intent_id",
    intent_id="d.intent_id", outbox_id="d.id", step="d.step", attempt="d.attempt", from_state="n.state",
    to_state="n.state", from_status="d.status", to_status="d.status", details="%(details)s::jsonb -> d.id::text",
)  # fmt: skip
# A lost claim, replay or cancel may still be running: nothing that was seen before counts towards a verdict, and the
# quiet time begins again. The claim may have been kept while the commit of its start mark was lost, so a missing mark
# proves nothing. Its first send may have been made after the database went back, long after the lost one, so the doubt
# begins with the intent. If another session locks an intent, its evidence would have to wait, so its row stays listed.
DOUBT_OPEN = f"""
WITH intents AS MATERIALIZED (
    SELECT n.id, n.state, n.created_at
      FROM idem.outbox o JOIN idem.intents n ON n.id = ANY (ARRAY[o.intent_id])
     WHERE o.id = ANY (%(ids)s)
     ORDER BY n.id FOR KEY SHARE OF n SKIP LOCKED
), doubted AS (
    UPDATE idem.outbox o
       SET doubted_since = coalesce(o.doubted_since, idem.earlier(o.first_sent_at, coalesce(o.denied_sent_at,
                               least(o.imported_sent_at,
                                     (SELECT n.created_at FROM intents n WHERE n.id = o.intent_id))))),
           quiet_after   = greatest(o.quiet_after, statement_timestamp() + make_interval(secs =>
                               coalesce((%(quiet)s::jsonb ->> o.provider)::float8, %(longest)s::float8))),
           absences       = 0,
           started_at    = CASE WHEN o.status = 'claimed' AND o.marks_start
                                THEN coalesce(o.started_at, statement_timestamp()) ELSE o.started_at END
     WHERE o.id = ANY (%(ids)s) AND o.intent_id = ANY (ARRAY(SELECT n.id FROM intents n))
    RETURNING o.id, o.intent_id, o.step, o.attempt, o.status
)
{_DOUBTED}
RETURNING outbox_id
"""  # noqa: S608


# The account that lost commits used for a row that this database does not know as sent: that of its last payments, as
# far as it can tell. Without an account idem would send the row again like any other, and another account does not
# remember the first send.
SENT_THEN = """
UPDATE idem.outbox o
   SET sent_as = (SELECT s.sent_as
                    FROM ((SELECT c.id, c.sent_as FROM idem.intents c
                            WHERE c.provider = o.provider AND c.account = o.account AND c.provider_reference IS NOT NULL
                              AND c.state = 'completed' AND c.outcome = 'succeeded'
                            ORDER BY c.id DESC LIMIT %(near)s)
                           UNION ALL
                          (SELECT d.outbox_id, d.sent_as FROM idem.steps d
                            WHERE d.provider = o.provider AND d.account = o.account AND d.provider_reference IS NOT NULL
                              AND d.outcome = 'succeeded'
                            ORDER BY d.outbox_id DESC LIMIT %(near)s)) s
                   WHERE s.sent_as IS NOT NULL ORDER BY s.id DESC LIMIT 1)
 WHERE o.id = ANY (%(ids)s) AND o.sent_as IS NULL AND o.doubted_since IS NOT NULL AND NOT o.inline
"""


async def _doubt_open(
    connection: AsyncConnection[Any], catalogue: Catalogue, rows: Mapping[UUID, dict[str, str]]
) -> list[UUID]:
    if not rows:
        return []
    values = {
        "ids": list(rows),
        "quiet": json.dumps({name: _quiet(p.contract) for name, p in catalogue.providers.items()}),
        "longest": LONGEST_FLIGHT + _quiet(Contract("")),
        "details": json.dumps({str(row): details for row, details in rows.items()}),
    }
    return [record[0] for record in await (await connection.execute(DOUBT_OPEN, values)).fetchall()]


def _left(row: OutboxRow, contract: Contract, details: dict[str, str]) -> Change:
    evidence = Evidence("recovery", "database_doubted", details=details)
    return Change(
        row.id, row.token, row.attempt, row.status, row.state, evidence, quiet_for=_quiet(contract), doubt="begins"
    )


def _quiet(contract: Contract) -> float:
    return contract.flight_limit + contract.pause_allowance
