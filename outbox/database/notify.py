"""Wakes idle workers: a notification after the commit, without guarantee. Polling finds the work of a lost
notification.

The accepting transaction never notifies: a NOTIFY inside it takes one lock for the whole database cluster at commit
and breaks two-phase commit. The library sends one, without payload, on a connection of its own, by the driver that is
there: psycopg, else asyncpg, else none, and the workers poll.
"""

import asyncio
import re
import threading
import time
from typing import TYPE_CHECKING, Final

from idem.outbox.database.address import Address
from idem.outbox.database.channel import CHANNEL

if TYPE_CHECKING:
    from idem.outbox.database.bounded import BlockingConnection

BUSY: Final = 4
MANY: Final = 3
"""Commits in one interval from which on the next hint waits longer."""
PATIENCE = 5.0
"""Seconds for one connection or one hint."""


class Nudge:
    """Sends at most one NOTIFY per `interval` seconds a process, from a thread of its own; per `BUSY` times that where
    many commits come: workers that have work need few hints.

    Errors are swallowed: the connection is made anew at the next nudge, and nothing depends on it.
    """

    def __init__(self, address: Address | str, *, interval: float = 0.005, settle_time: float = 0.0003) -> None:
        self._address = Address.of(address)
        self._interval = interval
        self._settle_time = settle_time
        self._wanted = threading.Event()
        self._asked = False
        self._wakes = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Wake the workers soon. A program that ends at once calls `close`, else its hint may be lost with it."""
        with self._lock:
            self._asked = True
            self._wakes += 1
            if self._thread is None or not self._thread.is_alive():
                self._closed = False
                self._thread = threading.Thread(target=self._run, name="idem-nudge", daemon=True)
                self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        """Send what was not sent yet and stop the thread, in two seconds at most; what is lost costs a poll."""
        self._closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        sender = _sender(self._address)
        while True:
            self._wanted.wait()
            if not self._closed:
                self._wanted.clear()
            if self._asked:
                self._asked = False
                # SQLAlchemy announces a commit just before it happens: give it the time to become visible.
                time.sleep(self._settle_time)
                sender.hint()
            if self._closed:
                break
            before = self._wakes
            time.sleep(self._interval)
            if self._wakes - before >= MANY:
                time.sleep((BUSY - 1) * self._interval)
        sender.close()


class _Sender:
    """Sends nothing: the workers poll."""

    def hint(self) -> None:
        """Send one; connect first where that is needed. Never raises."""

    def close(self) -> None:
        """Close the connection."""


def _sender(address: Address) -> _Sender:
    # A driver that is there and cannot be loaded (psycopg without libpq) is as good as none.
    for sender in (_Psycopg, _Asyncpg):
        try:
            return sender(address)
        except ImportError:
            pass
    return _Sender()


class _Psycopg(_Sender):
    def __init__(self, address: Address) -> None:
        from idem.outbox.database.session import bare_sync

        self._connect = bare_sync
        self._address = address
        self._connection: BlockingConnection | None = None

    def hint(self) -> None:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect(
                    # Behind a pooler in transaction mode a statement that was prepared is another program's.
                    self._address, name="idem nudge", connect_timeout=PATIENCE, prepare_threshold=None
                )  # fmt: skip
                self._connection.silence = PATIENCE
            self._connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
        except Exception:  # whatever a driver may raise: nothing depends on a hint
            self._connection = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _Asyncpg(_Sender):
    def __init__(self, address: Address) -> None:
        import asyncpg

        self._connect = asyncpg.connect
        self._address = address
        self._connection: asyncpg.Connection | None = None
        self._runner = asyncio.Runner()

    def hint(self) -> None:
        try:
            self._runner.run(self._hint())
        except Exception:  # whatever a driver may raise: nothing depends on a hint
            self._connection = None

    async def _hint(self) -> None:
        if self._connection is None or self._connection.is_closed():
            url = _for_asyncpg(self._address.now())
            self._connection = await self._connect(url, timeout=PATIENCE, statement_cache_size=0)
        await self._connection.execute("SELECT pg_notify($1, '')", CHANNEL, timeout=PATIENCE)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._runner.close()


UNDERSTOOD: Final = re.compile(
    "dbname|host|password|passfile|port|sslcert|sslcrl|sslkey|sslmode|sslpassword|sslrootcert|target_session_attrs|user"
)
"""What asyncpg takes in a URL; everything else it would send to the server as a setting."""


def _for_asyncpg(url: str) -> str:
    base, _, query = url.partition("?")
    kept = [pair for pair in query.split("&") if UNDERSTOOD.fullmatch(pair.partition("=")[0])]
    return base + (f"?{'&'.join(kept)}" if kept else "")
