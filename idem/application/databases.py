"""The databases that an application uses: the installation's secret of each, and the hints to its workers."""

import os
import threading
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from sqlalchemy import Engine

from idem.application.connections import ConnectionAdapter, SQLAlchemyAdapter
from idem.outbox.database import preconditions
from idem.outbox.database.address import Address
from idem.outbox.database.installation import NOT_INSTALLED, SECRET, check_deployment_tags
from idem.outbox.database.notify import Nudge
from idem.outbox.domain.provider import Provider
from idem.outbox.values.errors import StoreUnavailable


class Databases:
    """What is kept of each database. An engine that is gone takes its secret with it."""

    def __init__(self) -> None:
        self._engines: WeakKeyDictionary[Engine, bytes] = WeakKeyDictionary()
        self._others: dict[object, bytes] = {}
        self._nudges: dict[tuple[int, str], Nudge] = {}
        self._lock = threading.Lock()

    def secret(self, adapter: ConnectionAdapter, providers: Iterable[Provider]) -> bytes:
        """The installation's secret, read once. Raises StoreUnavailable where the schema is not installed, or where
        the requests of these providers would carry the tag of another deployment."""
        database = adapter.database
        known = self._engines.get(database) if isinstance(database, Engine) else self._others.get(database)
        if known is not None:
            return known
        row = adapter.row(SECRET, {})
        if row is None:
            hidden = preconditions.hindrances(preconditions.SessionAccess(*adapter.row(preconditions.HINDRANCES, {})))
            raise StoreUnavailable("; ".join(map(str, hidden)) or NOT_INSTALLED)
        check_deployment_tags(row.environment, providers)
        secret = bytes(row.secret)
        if isinstance(database, Engine):
            self._engines[database] = secret
        else:
            self._others[database] = secret
        return secret

    def wake(self, adapter: ConnectionAdapter, configured: Address | None) -> None:
        """Hint the workers of this database. `configured`: the one that idem's own settings name."""
        address = _address(adapter, configured)
        if address is None:
            return
        # A process that was forked has the object, but not its thread.
        at = os.getpid(), address.url
        with self._lock:
            nudge = self._nudges.get(at)
            if nudge is None:
                nudge = self._nudges[at] = Nudge(address)
        nudge.wake()

    def close(self) -> None:
        """End the threads that hint."""
        with self._lock:
            nudges, self._nudges = self._nudges, {}
        for (pid, _), nudge in nudges.items():
            if pid == os.getpid():
                nudge.close()


def _address(adapter: ConnectionAdapter, configured: Address | None) -> Address | None:
    # The caller's own database comes first: a test's is another one than the environment says.
    if not isinstance(adapter, SQLAlchemyAdapter):
        return configured
    url = adapter.connection.engine.url
    if url.query and configured is not None:
        # What stands behind the question mark is the driver's, and may mean nothing to another.
        return configured
    try:
        return Address.of(url.render_as_string(hide_password=False))
    except ValueError:
        return configured
