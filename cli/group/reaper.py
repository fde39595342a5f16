"""The supervisor's word that a daemon is dead: what it held waits for its flight limit only, not for a pause's end."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Any, Self

import psycopg

from idem.cli.group.children import Death
from idem.outbox.database import session
from idem.outbox.database.address import Address
from idem.outbox.observe import daemon_events, telemetry
from idem.outbox.values.clock import boottime

RETRY = 1.0
"""Seconds between two tries while the database is away."""
LAST_TRY = 5.0
"""Seconds at the end for what is not on record yet; without it an unknown waits longer, and nothing is lost."""

LIMITS = session.Timeouts(statement=5.0, lock=5.0)

REAP = """
UPDATE idem.daemons SET ended_at = statement_timestamp(), ended_how = 'reaped', tokens = '{}'
 WHERE host = %(host)s AND pid = %(pid)s AND ended_at IS NULL AND id LIKE '%%-' || %(life)s
   AND started_at >= statement_timestamp() - make_interval(secs => %(age)s)
"""


def record(connection: psycopg.Connection[Any], death: Death) -> int:
    """Put the end of one life on record; how many daemons it was, 0 if it had ended cleanly.

    Pids come again, and containers may share their host's name while each counts its own pids: it is the daemon that
    was started with the word of this life.
    """
    about = {"host": death.host, "pid": death.pid, "age": boottime() - death.started, "life": death.life}
    return connection.execute(REAP, about).rowcount


class Reaper:
    """Records deaths from a thread of its own, so that an outage of the database holds up no restart."""

    def __init__(self, address: Address | str) -> None:
        self._address = address
        self._deaths: deque[Death] = deque()
        self._news = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="reaper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._news:
            self._over = True
            self._news.notify()
        self._thread.join(LAST_TRY)

    def dead(self, death: Death) -> None:
        """Have this on record, as soon as the database takes it."""
        with self._news:
            self._deaths.append(death)
            self._news.notify()

    def _run(self) -> None:
        outage = daemon_events.Outage("supervisor")
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
                # Not the database's absence: asking again would not help, and must not hold up the next.
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
