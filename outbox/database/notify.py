"""Wakes idle workers: a notification after the commit, without guarantee. Polling finds the work of a lost
notification.

The accepting transaction never notifies: a NOTIFY inside it takes one lock for the whole database cluster at commit
and breaks two-phase commit. The library sends one, which names the lanes that have work, on a connection of its own,
by the driver that is there: psycopg, else asyncpg, else none, and the workers poll.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from idem.outbox.database.address import Address
from idem.outbox.database.channel import ALL, CHANNEL, payload

if TYPE_CHECKING:
    from idem.outbox.database.bounded import BlockingConnection

BUSY: Final = 4
MANY: Final = 3
"""Commits in one interval from which on the next hint waits longer."""
GLANCE: Final = 0.0003
"""Seconds between the first two times that it asks whether a commit is over; each pause is twice the last one."""
PATIENCE = 5.0
"""Seconds for one connection or one hint, and for which a commit is waited for."""


def _over() -> bool:
    return True


@dataclass(frozen=True, slots=True, eq=False)
class _Wake:
    lane: str
    ended: Callable[[], bool]
    at: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.ended() or time.monotonic() - self.at > PATIENCE


class Nudge:
    """Sends hints from a thread of its own: one for all that comes in `interval` seconds, or in `BUSY` times that where
    many commits come, because workers that have work need few.

    A commit that is under way is announced at once, because a hint takes as long as many a commit, and again when it is
    over: so one of the two claims finds it, and no worker has to guess when.

    Errors are swallowed: the connection is made anew at the next hint, and nothing depends on it.
    """

    def __init__(self, address: Address | str, *, interval: float = 0.005) -> None:
        self._address = Address.of(address)
        self._interval = interval
        self._wanted = threading.Event()
        self._wakes: list[_Wake] = []
        self._closed = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wake(self, lane: str = ALL, ended: Callable[[], bool] | None = None) -> None:
        """Wake the workers of this lane soon. `ended`: whether the transaction that has work for them is over.

        A program that ends at once calls `close`, else its hint may be lost with it.
        """
        # What is over already is not asked again: the thread's own connections are not the caller's.
        wake = _Wake(lane, _over if ended is None or ended() else ended)
        with self._lock:
            self._wakes.append(wake)
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
        under_way: list[_Wake] = []
        while True:
            self._wanted.wait(self._interval if under_way else None)
            if not self._closed:
                self._wanted.clear()
            with self._lock:
                new, self._wakes = self._wakes, []
            # Asked once, and before the hint is sent: what ends later may be missed by the claim that it causes.
            over = [wake for wake in (*under_way, *new) if wake.is_over]
            under_way = [wake for wake in (*under_way, *new) if wake not in over]
            sender.hint_at([*over, *new])
            if self._closed:
                break
            if len(new) < MANY:
                under_way = self._follow(sender, under_way)
            else:
                time.sleep(BUSY * self._interval)
        sender.close()

    def _follow(self, sender: "_Sender", under_way: list[_Wake]) -> list[_Wake]:
        """Hint again when these are over, for one interval; those that are not."""
        ends, pause = time.monotonic() + self._interval, GLANCE
        while under_way and time.monotonic() < ends and not self._closed:
            time.sleep(pause)
            pause *= 2
            over = [wake for wake in under_way if wake.is_over]
            under_way = [wake for wake in under_way if wake not in over]
            sender.hint_at(over)
        time.sleep(max(0.0, ends - time.monotonic()))
        return under_way


@dataclass(frozen=True, slots=True)
class CommitHint:
    """Wakes the workers of a lane, by a transaction that has work for them. Those of one lane are equal, so that a
    transaction with many of them keeps one."""

    nudge: Nudge
    lane: str
    ended: Callable[[], bool] = field(compare=False)

    def __call__(self) -> None:
        self.nudge.wake(self.lane, self.ended)


class _Sender:
    """Sends nothing: the workers poll."""

    def hint_at(self, wakes: Iterable[_Wake]) -> None:
        """Send one that names the lanes of all these, if there are any."""
        lanes = {wake.lane for wake in wakes}
        if lanes:
            self.hint(payload(lanes))

    def hint(self, lanes: str) -> None:
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

    def hint(self, lanes: str) -> None:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect(
                    # Behind a pooler in transaction mode a statement that was prepared is another program's.
                    self._address, name="idem nudge", connect_timeout=PATIENCE, prepare_threshold=None
                )  # fmt: skip
                self._connection.silence = PATIENCE
            self._connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, lanes))
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

    def hint(self, lanes: str) -> None:
        try:
            self._runner.run(self._hint(lanes))
        except Exception:  # whatever a driver may raise: nothing depends on a hint
            self._connection = None

    async def _hint(self, lanes: str) -> None:
        if self._connection is None or self._connection.is_closed():
            url = _for_asyncpg(self._address.now())
            self._connection = await self._connect(url, timeout=PATIENCE, statement_cache_size=0)
        await self._connection.execute("SELECT pg_notify($1, $2)", CHANNEL, lanes, timeout=PATIENCE)

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
