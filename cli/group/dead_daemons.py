"""Records that a daemon is dead: its calls then wait for the flight limit only, not for the pause allowance."""

import threading
from collections import deque
from typing import Any, Self

import psycopg

from idem.cli.group.children import Death
from idem.outbox.database import session
from idem.outbox.database.address import Address
from idem.outbox.observe import daemon_events, telemetry
from idem.outbox.values.clock import boottime

RETRY = 1.0
"""Seconds between two tries while the database is unavailable."""
LAST_TRY = 5.0
"""Seconds at the end for deaths not recorded yet; without the record an unknown call waits longer, but nothing is
lost.
"""

LIMITS = session.Timeouts(statement=5.0, lock=5.0)

DIED = """
UPDATE idem.daemons SET ended_at = statement_timestamp(), ended_how = 'reaped', tokens = '{}'
 WHERE host = %(host)s AND pid = %(pid)s AND ended_at IS NULL AND id LIKE '%%-' || %(life)s
   AND started_at >= statement_timestamp() - make_interval(secs => %(age)s)
"""


def record(connection: psycopg.Connection[Any], death: Death) -> int:
    """Record the exit of one process; returns how many daemons it was, 0 if it had stopped cleanly.

    Pids repeat, and containers may share a host name while each counts its own pids. The unique word of its start
    identifies the daemon.
    """
    about = {"host": death.host, "pid": death.pid, "age": boottime() - death.started, "life": death.life}
    return connection.execute(DIED, about).rowcount


class DeadDaemons:
    """Records deaths in a separate thread, so that an outage of the database does not delay a restart."""

    def __init__(self, address: Address | str) -> None:
        self._address = address
        self._deaths: deque[Death] = deque()
        self._news = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="dead daemons", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._over = True
            self._news.notify()
        self._thread.join(LAST_TRY)

    def add(self, death: Death) -> None:
        """Record this as soon as the database accepts it."""
        with self._news:
            self._deaths.append(death)
            self._news.notify()

    def _run(self) -> None:
        outage = daemon_events.OutageLog("supervisor")
        while True:
            with self._news:
                self._news.wait_for(lambda: self._deaths or self._over)
                if not self._deaths:
                    return
            try:
                self._record()
                outage.up()
            except psycopg.OperationalError as error:
                outage.down(error)
                self._pause()
            except psycopg.Error as error:
                # The database is available, so a retry would not help, and it must not delay the next record.
                telemetry.broken("supervisor", error, "record of a death")
                self._deaths.popleft()

    def _record(self) -> None:
        with session.connect_sync(self._address, name="idem supervisor", timeouts=LIMITS) as connection:
            while self._deaths:
                record(connection, self._deaths[0])
                self._deaths.popleft()

    def _pause(self) -> None:
        with self._news:
            self._news.wait(RETRY)
