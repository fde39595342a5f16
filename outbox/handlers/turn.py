"""One turn of a function of the user's that writes its own rows: it and idem's record of it are one transaction.

Written once, synchronous; asynchronous functions go through `run_sync` for all but their own code.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from idem.outbox.database import session
from idem.outbox.handlers.handler import ConnectionKind
from idem.outbox.values.errors import IdemError

TurnEnd: TypeAlias = Literal["succeeded", "not_now", "marked"]
"""not_now: another executor has it, or something earlier comes first. marked: done before, or past its retention."""

LOCK_TIMEOUT: Final = 10.0
"""Seconds that a function may wait for a lock: less than its time, so that what it waits for is named."""


class OwnTransaction(IdemError):
    """A function ended the transaction that it shares with idem's record of it. `whose`: what the function is."""

    def __init__(self, what: str, whose: str = "handler") -> None:
        record = "its mark is" if whose == "handler" else "its end is"
        super().__init__(
            f"the {whose} {what} the transaction that {record} written in: it only writes, and idem commits what it "
            "wrote together with that. Remove it; for a part that may fail use begin_nested()"
        )


class Turn(ABC):
    """A turn of `function`. `limit`: seconds that it may take. `backend` is the server process in whose transaction it
    runs, from when it runs; `whose` names the function's kind in messages."""

    whose = "handler"

    def __init__(self, function: Callable[..., Any], limit: float) -> None:
        self.function = function
        self.limit = limit
        self.backend: int | None = None
        self.transaction = ""
        self.ended_by_function: str | None = None
        self._ours = True

    @abstractmethod
    def begin(self, connection: Connection) -> tuple[Any, ...] | TurnEnd:
        """Lock what the turn is about. What the function gets behind its session; or the end of the turn without it."""

    @abstractmethod
    def end(self, connection: Connection, returned: Any) -> None:
        """Write the record, in the transaction of the function's own work. `returned`: what the function returned.

        Raises OwnTransaction if it is another transaction by now.
        """

    def prepare(self, connection: Connection) -> None:
        """Give the transaction its settings."""
        limit = f"{int(self.limit * 1000)}ms"
        settings = {
            **session.VALUES,
            "statement_timeout": limit,
            "lock_timeout": f"{int(min(LOCK_TIMEOUT, self.limit / 2) * 1000)}ms",
            "idle_in_transaction_session_timeout": limit,
        }
        # Of this transaction alone, so that nothing of one turn is left for the next, also behind a pooler.
        connection.exec_driver_sql(session.SETTINGS, session.parameters(settings, local=True))

    def guard(self, connection: Connection) -> None:
        """From now on a COMMIT or ROLLBACK on this connection is the function's, and refused."""

        def refuse(what: str) -> None:
            if not self._ours:
                self.ended_by_function = self.ended_by_function or what
                raise self.own_transaction()

        # Kept by the connection object, which is of this turn alone.
        event.listen(connection, "commit", lambda _: refuse("commits"))
        event.listen(connection, "rollback", lambda _: refuse("rolls back"))
        self._ours = False

    def over(self) -> None:
        """The function has ended: what comes now is ours. Raises OwnTransaction if it had tried to end it."""
        self._ours = True
        if self.ended_by_function is not None:
            raise self.own_transaction()

    def abandon(self) -> None:
        """The same after an exception."""
        self._ours = True

    def own_transaction(self) -> OwnTransaction:
        """What is raised where the function ended the transaction."""
        self.ended_by_function = self.ended_by_function or "ended"
        return OwnTransaction(self.ended_by_function, self.whose)


def run_turn(connection: Connection, turn: Turn, way: ConnectionKind, kind: type | None) -> TurnEnd:
    """Run a synchronous function to its commit. Raises what the function raises."""
    with connection.begin() as transaction:
        what = turn.begin(connection)
        if isinstance(what, str):
            return what
        session = None
        turn.guard(connection)
        try:
            if way == "Session":
                session = (kind or Session)(bind=connection, join_transaction_mode="control_fully")
                returned = turn.function(session, *what)
                session.flush()
            else:
                returned = turn.function(connection, *what)
            turn.over()
            turn.end(connection, returned)
            transaction.commit()
        finally:
            turn.abandon()
            if session is not None:
                session.close()
    return "succeeded"


async def run_turn_async(connection: AsyncConnection, turn: Turn, way: ConnectionKind, kind: type | None) -> TurnEnd:
    """The same of an asynchronous function."""
    async with connection.begin() as transaction:
        what = await connection.run_sync(turn.begin)
        if isinstance(what, str):
            return what
        session = None
        turn.guard(connection.sync_connection)  # type: ignore[arg-type]
        try:
            if way == "AsyncSession":
                session = (kind or AsyncSession)(bind=connection, join_transaction_mode="control_fully")
                returned = await turn.function(session, *what)
                await session.flush()
            else:
                returned = await turn.function(connection, *what)
            turn.over()
            await connection.run_sync(turn.end, returned)
            await transaction.commit()
        finally:
            turn.abandon()
            if session is not None:
                await session.close()
    return "succeeded"
