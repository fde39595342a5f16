"""Whether this database is still the one that idem wrote to; what follows where it is not (docs/design.md, Recovery).

A restore, a clone or an asynchronous promotion forgets claims: a row that looks queued may have been sent. Such rows
become `unknown`, unless a second send is harmless. What cannot be noticed (a restored snapshot with all daemons
restarted) is what `idem recover` is for.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from psycopg import AsyncConnection
from psycopg.rows import class_row

from idem.outbox import daemon_events, decide, moves
from idem.outbox.catalogue import Catalogue
from idem.outbox.change import Change, Evidence
from idem.outbox.database import records
from idem.outbox.errors import StoreUnavailable
from idem.outbox.installation import NOT_INSTALLED
from idem.outbox.rows import FIRST_ID, read_locked
from idem.outbox.settle import write
from idem.outbox.states import OutboxStatus

Durability: TypeAlias = Literal["single", "synchronous", "asynchronous"]
"""synchronous: a new timeline alone lost nothing. The others: it may have."""
BATCH = 500


@dataclass(frozen=True, slots=True)
class Identity:
    """Which database this is. `moved` is how far its write-ahead log has come, in bytes."""

    system_identifier: int
    timeline: int
    database_name: str
    moved: int


@dataclass(frozen=True, slots=True)
class Known:
    """Which database the installation was last seen in."""

    environment: str
    system_identifier: int
    timeline: int
    database_name: str


IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
       ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer AS timeline,
       current_database()::text AS database_name,
       (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS moved
"""
KNOWN = "SELECT environment, system_identifier, timeline, database_name FROM idem.installation"
KNOWN_LOCKED = KNOWN + " FOR UPDATE"


class Guard:
    """Runs on each new connection of a daemon, and compares the database with the installation's record.

    Raises StoreUnavailable while the environment is another one than this process is configured for: a clone of
    production must not be worked on by staging.
    """

    def __init__(self, catalogue: Catalogue, durability: Durability) -> None:
        self._catalogue = catalogue
        self._durability = durability
        self._moved = 0

    async def __call__(self, connection: AsyncConnection[Any]) -> None:
        # What was seen before the question was asked: answers on several connections may overtake each other.
        seen = self._moved
        identity = await _read(connection)
        went_back = identity.moved < seen
        self._moved = identity.moved if went_back else max(identity.moved, self._moved)
        cursor = connection.cursor(row_factory=class_row(Known))
        known = await (await cursor.execute(KNOWN)).fetchone()
        if known is None:
            raise StoreUnavailable(NOT_INSTALLED)
        if known.environment != self._catalogue.environment:
            raise StoreUnavailable(
                f"this database belongs to environment {known.environment!r}, this process is configured for "
                f"{self._catalogue.environment!r}; check database.url, or `environment` in idem.toml"
            )
        if went_back or _differs(known, identity):
            await self._changed(connection, went_back)

    async def _changed(self, connection: AsyncConnection[Any], went_back: bool) -> None:
        async with moves.transaction(connection):
            # One daemon does it, the others find it done.
            cursor = connection.cursor(row_factory=class_row(Known))
            known = await (await cursor.execute(KNOWN_LOCKED)).fetchone()
            identity = await _read(connection)
            if known is None or not (went_back or _differs(known, identity)):
                return
            only_timeline = (known.system_identifier, known.database_name) == (
                identity.system_identifier,
                identity.database_name,
            )
            lost = went_back or not (only_timeline and self._durability == "synchronous")
            rows = await quarantine(connection, self._catalogue, _what(known, identity, went_back)) if lost else 0
            await _adopt(connection, identity)
        daemon_events.database_changed(_what(known, identity, went_back), rows)


ADOPT = """
UPDATE idem.installation SET system_identifier = %(system)s, timeline = %(timeline)s, database_name = %(name)s,
       changed_at = statement_timestamp()
"""


async def _adopt(connection: AsyncConnection[Any], identity: Identity) -> None:
    parameters = {"system": identity.system_identifier, "timeline": identity.timeline, "name": identity.database_name}
    await connection.execute(ADOPT, parameters)


async def _read(connection: AsyncConnection[Any]) -> Identity:
    cursor = connection.cursor(row_factory=class_row(Identity))
    identity = await (await cursor.execute(IDENTITY)).fetchone()
    assert identity is not None
    return identity


def _differs(known: Known, identity: Identity) -> bool:
    return (known.system_identifier, known.timeline, known.database_name) != (
        identity.system_identifier,
        identity.timeline,
        identity.database_name,
    )


def _what(known: Known, identity: Identity, went_back: bool) -> str:
    if went_back:
        return "the write-ahead log went back behind what this process had seen"
    if known.system_identifier != identity.system_identifier:
        return "another database cluster"
    if known.database_name != identity.database_name:
        return f"database {identity.database_name!r} instead of {known.database_name!r}"
    return f"timeline {identity.timeline} instead of {known.timeline}"


QUEUED = """
SELECT o.id, extract(epoch FROM statement_timestamp() - n.created_at)::float8 AS age
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.id > %(after)s AND o.status IN ('pending', 'waiting', 'unfrozen', 'held')
 ORDER BY o.id LIMIT %(limit)s FOR UPDATE OF o
"""
# The claim may have been kept and the commit of its start mark lost, so "no mark" proves nothing any more.
DOUBT_STARTS = """
UPDATE idem.outbox SET started_at = statement_timestamp()
 WHERE status = 'claimed' AND marks_start AND started_at IS NULL
"""


async def quarantine(connection: AsyncConnection[Any], catalogue: Catalogue, why: str, *, by: str = "daemon") -> int:
    """Move every queued or resting row to `unknown`, unless a second send is harmless; how many.

    Runs inside the caller's transaction. Harmless: the contract says that a replay is safe, and the row is younger
    than the retention guard. A claimed row becomes unknown by the sweep of its claim.
    """
    await connection.execute(DOUBT_STARTS)
    moved, after = 0, FIRST_ID
    while True:
        cursor = records(connection)
        queued = await (await cursor.execute(QUEUED, {"after": after, "limit": BATCH})).fetchall()
        if not queued:
            return moved
        after = queued[-1].id
        ages = {record.id: record.age for record in queued}
        changes: list[Change] = []
        for found in await read_locked(connection, list(ages)):
            terms = catalogue.cautious(found.row.operation, found.row.provider)
            young = terms.contract.replays and ages[found.row.id] < terms.contract.replay_window
            # Whether the caller's own code sends the provider's key is not known here.
            if terms.known and young and not found.row.inline:
                continue
            evidence = Evidence("recovery", "database_changed", details={"why": why, "by": by})
            changes.append(decide.database_changed(found.row, evidence, terms))
        moved += len(await write(connection, changes))


# A subquery that gives one value, because a join would read all evidence that there ever was.
QUARANTINED = """
SELECT o.id, w.was
  FROM idem.outbox o CROSS JOIN LATERAL (
       SELECT (SELECT e.from_status FROM idem.evidence e
                WHERE e.intent_id = o.intent_id AND e.outbox_id = o.id AND e.kind = 'database_changed'
                  AND NOT EXISTS (SELECT FROM idem.evidence l
                                   WHERE l.intent_id = e.intent_id AND l.outbox_id = e.outbox_id AND l.id > e.id
                                     AND (l.to_status IS DISTINCT FROM 'unknown' OR l.kind = 'replay'))
                LIMIT 1) AS was) w
 WHERE o.status = 'unknown' AND o.claim_token IS NULL AND o.id > %(after)s AND w.was IS NOT NULL
 ORDER BY o.id LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED
"""


async def release(connection: AsyncConnection[Any], catalogue: Catalogue, *, by: str, reason: str) -> int:
    """An operator's word that the change lost nothing: rows that nobody touched since are again what they were.

    What was queued goes back to work, what was at rest rests: its client was told that nothing happened, and may have
    paid otherwise. Rows about which proofs disagree stay. Returns how many were released.
    """
    released, after = 0, FIRST_ID
    evidence = Evidence("operator", "recovered_lossless", details={"by": by, "reason": reason})
    while True:
        async with moves.transaction(connection):
            cursor = records(connection)
            found = await (await cursor.execute(QUARANTINED, {"after": after, "limit": BATCH})).fetchall()
            if not found:
                return released
            was = {record.id: record.was for record in found}
            after = found[-1].id
            known = [(f.row, catalogue.terms(f.row.operation)) for f in await read_locked(connection, list(was))]
            rows = {row.id: (row, t) for row, t in known if t is not None and not row.contradicted}
            verdicts = [decide.verdict(row, evidence, terms, redrive=False) for row, terms in rows.values()]
            # Of a rest nobody hears now: it was told before, or lasts no longer than this transaction.
            rested = await write(connection, [dataclasses.replace(change, event=None) for change in verdicts])
            released += len(rested)
            queued = [row_id for row_id in rested if was[row_id] != OutboxStatus.HELD]
            changes: list[Change] = []
            for at_rest in await read_locked(connection, queued):
                terms = rows[at_rest.row.id][1]
                changes.append(decide.redriven(at_rest.row, evidence, terms, patience=terms.operation.patience))
            await write(connection, changes)
