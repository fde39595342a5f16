"""Accepts requests for operations that a test defines as data, without an `Idem`, through the library's own accept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from idem.application import accepting, connections
from idem.application.databases import Databases
from idem.decisions import Accepted, Decision, Retrying
from idem.outbox import config
from idem.outbox.database.notify import Nudge
from idem.outbox.domain import keys
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.provider import Provider


class Acceptor:
    """Accepts requests. Tests may change `operations` and `providers`. `nudge` wakes idle workers after a commit."""

    def __init__(
        self, operations: Mapping[str, OperationSpec], providers: Mapping[str, Provider], nudge: Nudge | None = None
    ) -> None:
        self.operations = operations
        self.providers = providers
        self.nudge = nudge
        self._databases = Databases()

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """An acceptor for everything that an idem.toml and `IDEM_…` configure."""
        found = config.load(path)
        return cls(found.operations, found.providers)

    def accept(
        self, connection: Connection | Session, tenant: str, operation: str, key: str, params: Any,
        *, traceparent: str | None = None, ordering_key: str | None = None, asked_by: str | None = None,
    ) -> Decision:  # fmt: skip
        """Accept one request in the caller's open transaction; the caller commits."""
        adapter = connections.adapt(connection, begin=True)
        secret = self._databases.secret(adapter, self.providers.values())
        decided = accepting.accept(
            adapter, self.operations, self.providers, secret, tenant=tenant, operation=operation,
            key=keys.parse_key(key), params=params, traceparent=traceparent, ordering_key=ordering_key,
            asked_by=asked_by,
        )  # fmt: skip
        if self.nudge is not None and isinstance(decided, Accepted | Retrying):
            nudge = self.nudge
            adapter.after_commit(lambda: nudge.wake(ended=adapter.ended))
        return decided

    async def accept_async(
        self, connection: AsyncConnection | AsyncSession, tenant: str, operation: str, key: str, params: Any
    ) -> Decision:
        """The same over AsyncConnection and AsyncSession."""
        return await connection.run_sync(lambda sync: self.accept(sync, tenant, operation, key, params))

    def know(self, connection: Connection) -> None:
        """Read the installation's secret now, so that the next accept has no additional round trip."""
        self._databases.secret(connections.adapt(connection, begin=True), self.providers.values())
