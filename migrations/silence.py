"""A session of `idem db` waits as long as the server works, but not for a dead connection."""

import contextlib
import os
import socket
import threading
from typing import Any, Final

import psycopg

SILENCE: Final = 90.0
"""Seconds without an answer after which another session asks whether the server works. More than any lock may take."""
PATIENCE: Final = 15.0
"""Seconds that this question may take, the new connection included."""

# An own session is shown with its state to every role.
WORKS = """
SELECT coalesce(a.state NOT LIKE 'idle%%', true) AS works FROM pg_catalog.pg_stat_activity a WHERE a.pid = %(pid)s
"""


class Session(psycopg.Connection[Any]):
    """A connection of `idem db`.

    An index of a large table may take hours without a word on the line, so no time alone says that a line is lost. What
    says it: no other session can ask, or the server has ended this one or waits for us.
    """

    silence: float = SILENCE
    patience: float = PATIENCE
    backend: int | None = None
    """The process of the server that works for it. A pooler names another one when the session begins."""

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """psycopg calls this for everything that it sends. Raises OperationalError where the line is given up."""
        watch = _Watch(self)
        try:
            return super().wait(*args, **kwargs)
        except psycopg.Error as error:
            if watch.lost:
                raise psycopg.OperationalError(
                    f"the database has not answered for {self.silence:g} s, and a second connection does not find it "
                    "at work, so idem gave up the connection. Check what is in between (a pooler, a load balancer, a "
                    "firewall), then run this again"
                ) from error
            raise
        finally:
            watch.over.set()


class _Watch:
    def __init__(self, session: Session) -> None:
        self.over, self.lost = threading.Event(), False
        self._session = session
        threading.Thread(target=self._run, name="idem-db-line", daemon=True).start()

    def _run(self) -> None:
        while not self.over.wait(self._session.silence):
            # What says that nothing is at work is asked again: our answer may be on its way.
            if (works := self._works()) or (works is False and (self.over.wait(1) or self._works())):
                continue
            if not self.over.is_set():
                self.lost = True
                self._cut()
            return

    def _cut(self) -> None:
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._session.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def _works(self) -> bool | None:
        """Whether the server is at work for the session; None: this was not answered."""
        said: list[bool] = []
        asking = threading.Thread(target=self._ask, args=(said,), name="idem-db-look", daemon=True)
        asking.start()
        asking.join(self._session.patience)
        return said[0] if said else None

    def _ask(self, said: list[bool]) -> None:
        info = self._session.info
        with contextlib.suppress(psycopg.Error), psycopg.connect(info.dsn, password=info.password) as other:
            pid = self._session.backend or info.backend_pid
            said.append(other.execute(WORKS, {"pid": pid}).fetchone() == (True,))
