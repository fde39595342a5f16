"""Checks whether this database is still the one that idem wrote to, on each new connection and at each heartbeat.

Nothing can notice a restored snapshot if all daemons were restarted; `idem recover` is for that.
"""

import asyncio
from typing import Any, Literal, TypeAlias

from psycopg import AsyncConnection

from idem.outbox.database import identity as identities
from idem.outbox.database.identity import differs, same_but_for_timeline, what
from idem.outbox.database.installation import NOT_INSTALLED, other_environment
from idem.outbox.database.memory import Beat, Memory, newest
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.observe import after_commit, daemon_events
from idem.outbox.recovery.quarantine import work_off
from idem.outbox.settle import doubted_rows
from idem.outbox.values.errors import StoreUnavailable

Durability: TypeAlias = Literal["single", "synchronous", "asynchronous"]
"""synchronous: a new timeline alone lost nothing. The others: it may have lost commits."""


class Guard:
    """Runs on each new connection of a daemon. It compares the database with the installation's record and with what
    this process remembers: the log position at its newest connection, and everything at its last heartbeat.

    Raises StoreUnavailable if this process is configured for another environment: staging must not work on a clone of
    production.
    """

    def __init__(self, catalogue: Catalogue, durability: Durability) -> None:
        self._catalogue = catalogue
        self._durability = durability
        self._memory = Memory()
        self._one = asyncio.Lock()

    async def __call__(self, connection: AsyncConnection[Any]) -> None:
        # One connection at a time: while one doubts the rows, no other passes.
        async with self._one:
            # Read it first: another heartbeat may arrive meanwhile, and what is read later would then look older.
            memory = self._memory
            identity = await identities.read(connection)
            went_back = identity.moved < memory.moved or await _forgotten(connection, memory)
            known = await identities.known(connection)
            if known is None:
                raise StoreUnavailable(NOT_INSTALLED)
            if wrong := other_environment(known.environment, self._catalogue.environment):
                raise StoreUnavailable(wrong)
            if went_back or differs(known, identity):
                await self._changed(connection, memory, went_back)
            # What is only on this server's disk may be missing on the synchronous standby that replaces it, so there it
            # remembers only the log position behind a commit, that of heartbeats.
            moved = 0 if self._durability == "synchronous" else identity.moved
            kept = self._memory
            self._memory = Memory(
                max(kept.moved, moved), newest(kept.recovery_statement, known.recovery_statement), kept.beats
            )

    async def beaten(self, connection: AsyncConnection[Any], beat: Beat) -> None:
        """Remember a heartbeat that this connection has committed.

        It notices a database that went back under a connection that stays (tables emptied and filled from a dump, or
        created again).
        """
        async with self._one:
            memory = self._memory
            before = memory.beats.get(beat.daemon)
            if before is not None and before.undone_by(beat):
                await self._changed(connection, memory, went_back=True)
                memory = self._memory
            self._memory = memory.beaten(beat)

    async def _changed(self, connection: AsyncConnection[Any], memory: Memory, went_back: bool) -> None:
        async with after_commit.transaction(connection):
            # One daemon does it; the others find it done.
            known = await identities.known(connection, lock=True)
            identity = await identities.read(connection)
            if known is None:
                return
            # A statement after the change (by `idem recover`, or by another daemon) is about this change.
            went_back = went_back and not memory.spoken_since(known.recovery_statement)
            if not (went_back or differs(known, identity)):
                self._memory = Memory()
                return
            lost = went_back or not (same_but_for_timeline(known, identity) and self._durability == "synchronous")
            said = what(known, identity, went_back)
            listed = await doubted_rows.list_open(connection, said) if lost else 0
            await identities.adopt(connection, identity, doubted=lost)
        daemon_events.database_changed(said, listed)
        # It notices the change once: no daemon sends a listed row, and the sweeper finishes what this process does not.
        self._memory = Memory()
        if lost:
            found = await work_off(connection, self._catalogue)
            daemon_events.rows_doubted(found.unknown, found.left, found.left_for, found.open, found.waiting)


async def _forgotten(connection: AsyncConnection[Any], memory: Memory) -> bool:
    if not memory.beats:
        return False
    now, kept = await identities.beats(connection, memory.beats)
    return any(beat.forgotten(kept.get(daemon), now) for daemon, beat in memory.beats.items())
