"""Whether this database is still the one that idem wrote to: asked on each new connection.

What cannot be noticed (a restored snapshot with all daemons restarted) is what `idem recover` is for.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeAlias

from psycopg import AsyncConnection

from idem.outbox import daemon_events, moves
from idem.outbox.catalogue import Catalogue
from idem.outbox.errors import StoreUnavailable
from idem.outbox.installation import NOT_INSTALLED
from idem.outbox.recovery import doubts
from idem.outbox.recovery import identity as identities
from idem.outbox.recovery.identity import Identity, Known, differs, what
from idem.outbox.recovery.quarantine import work_off

Durability: TypeAlias = Literal["single", "synchronous", "asynchronous"]
"""synchronous: a new timeline alone lost nothing. The others: it may have."""


class Guard:
    """Runs on each new connection of a daemon, and compares the database with the installation's record.

    Raises StoreUnavailable while the environment is another one than this process is configured for: a clone of
    production must not be worked on by staging.
    """

    def __init__(self, catalogue: Catalogue, durability: Durability) -> None:
        self._catalogue = catalogue
        self._durability = durability
        self._moved = 0
        self._one = asyncio.Lock()

    async def __call__(self, connection: AsyncConnection[Any]) -> None:
        # One connection at a time: while one doubts the rows, no other passes.
        async with self._one:
            identity = await identities.read(connection)
            went_back = identity.moved < self._moved
            known = await identities.known(connection)
            if known is None:
                raise StoreUnavailable(NOT_INSTALLED)
            if known.environment != self._catalogue.environment:
                raise StoreUnavailable(
                    f"this database belongs to environment {known.environment!r}, this process is configured for "
                    f"{self._catalogue.environment!r}; check database.url, or `environment` in idem.toml"
                )
            if (went_back and not _spoken_about(known, identity)) or differs(known, identity):
                await self._changed(connection, went_back)
            # Only now: where that failed or was cancelled, the next connection must notice it again.
            self._moved = identity.moved

    async def _changed(self, connection: AsyncConnection[Any], went_back: bool) -> None:
        async with moves.transaction(connection):
            # One daemon does it, the others find it done.
            known = await identities.known(connection, lock=True)
            identity = await identities.read(connection)
            if known is None or not (went_back or differs(known, identity)):
                return
            if _spoken_about(known, identity) and not differs(known, identity):
                return
            only_timeline = (known.system_identifier, known.database_name) == (
                identity.system_identifier,
                identity.database_name,
            )
            lost = went_back or not (only_timeline and self._durability == "synchronous")
            said = what(known, identity, went_back)
            listed = await doubts.list_open(connection, said) if lost else 0
            await identities.adopt(connection, identity)
        daemon_events.database_changed(said, listed)
        # Noticed once: nobody sends what is listed, and what this process does not get to, the sweeper does.
        self._moved = identity.moved
        if lost:
            found = await work_off(connection, self._catalogue)
            daemon_events.rows_doubted(found.unknown, found.left, found.left_for, found.open, found.waiting)


def _spoken_about(known: Known, identity: Identity) -> bool:
    # The log of this process's memory ended with the server of before. What `idem recover` has said since the server
    # started, and since the last change that was noticed, it has said about what this process notices only now.
    if known.recovered_at is None or known.recovered_at <= identity.started:
        return False
    return known.changed_at is None or known.recovered_at >= known.changed_at
