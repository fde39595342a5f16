"""Sessions that one test hands to the next.

The server reads the schema, compiles functions and plans statements anew in each session, which costs more than what
most tests do with it. A session that is handed on has been reset and keeps its plans, as those of a daemon do. A
database that a test has given settings, or closed, gets new sessions.
"""

from collections import defaultdict
from functools import cache
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg._connection_base import BaseConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from idem.outbox.database.bounded import BoundedConnection
from idem.outbox.database.pool import Database

AT_MOST: Final = 2
"""Sessions of each kind that are kept for a database."""

NEW_ONES_ARE_LIKE_IT = b"""
SELECT 1 FROM pg_database d
 WHERE datname = current_database() AND datallowconn
   AND NOT EXISTS (SELECT FROM pg_db_role_setting s WHERE s.setdatabase IN (0, d.oid))
"""

RESET = b"""
CLOSE ALL; UNLISTEN *; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; SELECT pg_advisory_unlock_all();
DISCARD TEMP; DISCARD SEQUENCES
"""
Connecting = TypeVar("Connecting", bound=BaseConnection[Any])
Session = tuple[PGconn, Any]
"""A session, and psycopg's record of what is prepared in it."""

_kept: defaultdict[tuple[str, str], list[Session]] = defaultdict(list)
"""By the name of the database, which no two servers of a run share, and the name of the pool or the URL."""
_lent: set[str] = set()
"""URLs of databases that tests hand on: no others have sessions that stay, those through a proxy among them."""


own = False
"""Whether the connections of this test are its own: it takes none, and leaves none."""


@cache
def _name(url: str) -> str:
    return str(conninfo_to_dict(url).get("dbname"))


def _of(url: str, kind: str) -> list[Session]:
    return _kept[_name(url), kind]


def take(url: str, kind: str, connecting: type[Connecting]) -> Connecting | None:
    """A connection to this database, if a session of this kind is kept that is no different from a new one."""
    while not own and url in _lent and (kept := _of(url, kind)):
        line, prepared = kept.pop()
        if line.exec_(NEW_ONES_ARE_LIKE_IT).ntuples == 1:
            connection = connecting(line)
            connection._prepared = prepared
            return connection
        line.finish()
    return None


def keep(url: str, kind: str, connection: BaseConnection[Any]) -> bool:
    """Keep its session for the next test. False: it is not kept, and the caller closes it."""
    line = connection.pgconn
    if own or url not in _lent:
        return False
    if connection.closed or len(_of(url, kind)) >= AT_MOST:
        return False
    if line.transaction_status != TransactionStatus.IDLE:
        return False
    if line.exec_(RESET).status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        return False
    _of(url, kind).append((line, connection._prepared))
    return True


def lend(url: str) -> None:
    """Keep sessions of this URL from now on."""
    _lent.add(url)


def end(url: str) -> None:
    """Close what is kept for this database."""
    for of in [each for each in _kept if each[0] == _name(url)]:
        for line, _ in _kept.pop(of):
            line.finish()


def pids(url: str) -> list[int]:
    """The server's processes that are kept for this database."""
    return [line.backend_pid for (name, _), kept in _kept.items() if name == _name(url) for line, _ in kept]


class KeptDatabase(Database):
    """The daemons' connections, whose sessions are kept when it is closed."""

    _closing = False

    def _connection_class(self) -> type[BoundedConnection]:
        database, url, base = self, self.address.now(), super()._connection_class()

        class Kept(base):  # type: ignore[misc, valid-type]  # a class of this pool's own
            @classmethod
            async def connect(cls, conninfo: str = "", **options: Any) -> Self:
                if (made := take(url, database._name, cls)) is None:
                    return await super().connect(conninfo, **options)  # type: ignore[no-any-return]
                await made.set_autocommit(True)
                database._dedicated.add(made)
                return made

            async def close(self) -> None:
                if not database._closing or not keep(url, database._name, self):
                    await super().close()

        return Kept

    async def close(self) -> None:
        self._closing = True
        await super().close()


class KeptConnection(psycopg.Connection[Any]):
    """A connection whose session is kept when it is closed."""

    url = ""

    def close(self) -> None:
        if not keep(self.url, self.url, self):
            super().close()


def session(url: str) -> KeptConnection:
    """A connection to this database, which keeps its session if tests hand the database on."""
    connection = take(url, url, KeptConnection) or KeptConnection.connect(url)
    connection.url = url
    return connection


@cache
def engine(url: str) -> Engine:
    """SQLAlchemy's, whose sessions are kept."""
    return create_engine("postgresql+psycopg://", poolclass=NullPool, creator=lambda: session(url))
