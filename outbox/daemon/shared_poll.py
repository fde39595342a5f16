"""One statement that says which kinds of a daemon's work there are, for all passes that begin together.

A pass that finds nothing is what an idle daemon does all day: so each asks here first, and only the first of those that
begin within the same half of an interval sends a statement.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias

from psycopg import AsyncConnection

from idem.outbox.database.pool import Database

Ask: TypeAlias = Callable[[AsyncConnection[Any]], Awaitable[Collection[str]]]
"""The kinds of work that there may be. One that is missing has none."""


class SharedPoll:
    """The shared answer. `interval`: seconds between two of the passes that share it."""

    def __init__(self, database: Database, ask: Ask, interval: float) -> None:
        self._database = database
        self._ask = ask
        self._fresh = interval / 2
        self._asking = asyncio.Lock()
        self._found: Collection[str] = ()
        self._until = float("-inf")

    async def finds(self, kind: str) -> bool:
        """Whether there may be work of this kind; by an answer that is at most half an interval old.

        Raises what an unreachable database raises.
        """
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() >= self._until:
                # From before the statement: what commits later is not in its answer.
                until = loop.time() + self._fresh
                async with self._database.connection() as connection:
                    self._found = await self._ask(connection)
                self._until = until
            return kind in self._found
