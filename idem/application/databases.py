"""The databases that an application uses: the installation's secret of each, and the hints to its workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from idem.application.connections import ConnectionAdapter
from idem.outbox.database import preconditions
from idem.outbox.database.address import Address
from idem.outbox.database.installation import NOT_INSTALLED, SECRET, check_deployment_tags
from idem.outbox.database.notify import CommitHint, Nudge
from idem.outbox.domain.provider import Provider
from idem.outbox.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Databases:
    """What is kept of each database. An engine that is gone takes its secret with it."""

    def __init__(self) -> None:
        self._engines: WeakKeyDictionary[Engine, bytes] = WeakKeyDictionary()
        self._others: dict[str, bytes] = {}
        self._nudges: dict[tuple[int, str], Nudge] = {}
        self._nudge_of: WeakKeyDictionary[Engine, tuple[int, Address | None, Nudge | None]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def secret(self, adapter: ConnectionAdapter, providers: Iterable[Provider]) -> bytes:
        """The installation's secret, read once. Raises StoreUnavailable where the schema is not installed, or where
        the requests of these providers would carry the tag of another deployment."""
        database = adapter.database
        known = self._others.get(database) if isinstance(database, str) else self._engines.get(database)
        if known is not None:
            return known
        row = adapter.row(SECRET, {})
        if row is None:
            hidden = preconditions.hindrances(preconditions.SessionAccess(*adapter.row(preconditions.HINDRANCES, {})))
            raise StoreUnavailable("; ".join(map(str, hidden)) or NOT_INSTALLED)
        check_deployment_tags(row.environment, providers)
        secret = bytes(row.secret)
        if isinstance(database, str):
            self._others[database] = secret
        else:
            self._engines[database] = secret
        return secret

    def hint(self, adapter: ConnectionAdapter, configured: Address | None, lane: str) -> CommitHint | None:
        """What hints the workers of a lane of this database, by this transaction; None: its address is not known.
        `configured`: the one that idem's own settings name."""
        database = adapter.database
        nudge = self._nudge(None if isinstance(database, str) else database, configured)
        return None if nudge is None else CommitHint(nudge, lane, adapter.ended)

    def _nudge(self, engine: Engine | None, configured: Address | None) -> Nudge | None:
        # A process that was forked has the object, but not its thread.
        process = os.getpid()
        if (
            engine is not None
            and (known := self._nudge_of.get(engine)) is not None
            and known[:2] == (process, configured)
        ):
            return known[2]
        address = _address(engine, configured)
        with self._lock:
            nudge = None if address is None else self._nudges.get((process, address.url))
            if nudge is None and address is not None:
                nudge = self._nudges[process, address.url] = Nudge(address)
            if engine is not None:
                self._nudge_of[engine] = process, configured, nudge
        return nudge

    def close(self) -> None:
        """End the threads that hint."""
        with self._lock:
            nudges, self._nudges = self._nudges, {}
            self._nudge_of.clear()
        for (pid, _), nudge in nudges.items():
            if pid == os.getpid():
                nudge.close()


def _address(engine: Engine | None, configured: Address | None) -> Address | None:
    # The caller's own database comes first: a test's is another one than the environment says.
    if engine is None:
        return configured
    url = engine.url
    if url.query and configured is not None:
        # What stands behind the question mark is the driver's, and may mean nothing to another.
        return configured
    try:
        return Address.of(url.render_as_string(hide_password=False))
    except ValueError:
        return configured
