"""idem's own event loop and connections in a process of the application's.

For what cannot be done on the caller's connection: a provider's events, calls under a lease, cancelling. One thread a
process; synchronous code waits for it, asynchronous code awaits it. Needs the extra `daemon`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from idem.application.keyed_request import KeyedRequest
from idem.application.misuse import Misuse
from idem.application.waiting import away
from idem.outbox.accept import known_keys
from idem.outbox.accept.accept import MINIMUM_RETRY_AFTER
from idem.outbox.accept.status import STATUS, Status, columns, status_of
from idem.outbox.accept.waiting import Patience
from idem.outbox.database import installation
from idem.outbox.database.outage import Outage
from idem.outbox.domain import fingerprints
from idem.outbox.domain.decisions import InProgress
from idem.outbox.values.background_loop import BackgroundLoop
from idem.outbox.values.sql_parameters import pyformat

if TYPE_CHECKING:
    from idem.application.app import Idem
    from idem.outbox.database.pool import Database
    from idem.outbox.inline import InlineRuns
    from idem.outbox.settle.answer_rendering import Renderer

Result = TypeVar("Result")
CONNECTIONS: Final = 4
NEEDED: Final = ("psycopg", "psycopg_pool", "prometheus_client", "starlette", "structlog")
"""What the extra `daemon` brings and this needs."""
ASKED_WITHIN: Final = 11.0
"""Seconds for one question to the database, its connection (5 s) and its statement (5 s) included."""


class ApplicationLoop(BackgroundLoop):
    """The event loop of idem in an application's process; the first call that needs it starts it."""

    def __init__(self, idem: Idem) -> None:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise Misuse(
                f"{', '.join(missing)} is missing: events, inline calls and cancelling need "
                "idem's extra `daemon` (in a clone: `pip install '.[daemon]'`)"
            )
        from idem.outbox.observe import logs

        logs.quietly()
        self._idem = idem
        self._process = os.getpid()
        super().__init__("idem-background")
        self._open: asyncio.Lock | None = None
        self._database: Database | None = None
        self._renderer: Renderer | None = None
        self._runs: InlineRuns | None = None
        self._secret: bytes | None = None
        self._outage = Outage()

    def send(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run this and do not wait for it. Raises Misuse in a process that was forked from the one that began it."""
        if os.getpid() != self._process:
            work.close()
            raise Misuse(
                "this process was forked from the one that began this: its loop and its connections are not here, so "
                "only that one can go on with it"
            )
        return super().send(work)

    def close(self) -> None:
        """End what runs here: leases are renewed no longer, connections are closed."""

        async def work() -> None:
            if self._runs is not None:
                await self._runs.close()
            if self._database is not None:
                await self._database.close()

        self.call(work())
        super().close()

    async def cancel(self, intent: UUID, *, by: str, reason: str) -> None:
        """Cancel what was certainly not sent. On idem's loop. Raises OperatorRefused."""
        from idem.outbox.operator import actions

        async def work() -> None:
            database = await self.database()
            async with database.connection() as connection:
                await actions.cancel(connection, self._idem.accepting(), intent, by=by, reason=reason, source="client")

        await self.asking(work)

    def webhooks(self) -> Any:
        """An ASGI application for the providers' events."""
        from idem.reconciler.webhooks.embedded import Mounted

        return Mounted(self.database, self.call_async, self._idem.accepting(), self._idem.webhook_settings)

    async def ingest_async(self, provider: str, headers: Any, body: bytes, account: str | None) -> str:
        """Take one event. Raises WebhookRefused."""
        return await self.call_async(self._take(provider, headers, body, account))

    def ingest(self, provider: str, headers: Any, body: bytes, account: str | None) -> str:
        """The same, for a caller without a loop."""
        return self.call(self._take(provider, headers, body, account))

    async def runs(self) -> InlineRuns:
        """The inline calls of this process. On idem's loop."""
        if self._runs is None:
            from idem.outbox.inline import InlineRuns

            self._runs = InlineRuns(await self.database(), self._idem.accepting())
        return self._runs

    async def secret(self) -> bytes:
        """The installation's secret, read once. On idem's loop."""
        if self._secret is None:
            self._secret = await self._asking_soon(self._read_secret)
        return self._secret

    async def _read_secret(self) -> bytes:
        async with (await self.database()).connection() as connection:
            return await installation.secret(connection)

    async def asking(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Do this, which asks the database and ends in bounded time. On idem's loop.

        Raises StoreUnavailable at once while the database is away and another request is asking it.
        """
        from idem.outbox.database.pool import met_away

        with self._outage.asking(met_away):
            return await work()

    async def _asking_soon(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The same for a short question: it is given up after `ASKED_WITHIN`. Raises StoreUnavailable."""
        from idem.outbox.database.pool import AWAY, REFUSED, time_limited

        try:
            return await self.asking(lambda: time_limited(ASKED_WITHIN, work()))
        except (*AWAY, *REFUSED) as error:
            raise away(error) from error

    async def recall(self, request: KeyedRequest) -> known_keys.Recalled | None:
        """How the key of a request stands that its operation refuses now. On idem's loop. Raises StoreUnavailable."""
        from idem.outbox.database.pool import records

        # A fingerprint over the bytes of a body that is not JSON leaves nothing out, and the bytes are not kept.
        raw = request.fingerprint if fingerprints.left_out(request.fingerprint) is None else None
        retry = known_keys.Retry(
            request.tenant, request.operation.name, request.key, request.params, request.address, request.query, raw
        )

        async def read() -> known_keys.Recalled | None:
            async with (await self.database()).connection() as connection:

                async def row(statement: str, values: Mapping[str, Any]) -> Any:
                    return await (await records(connection).execute(pyformat(statement), values)).fetchone()

                return await known_keys.recall_async(row, retry)

        return await self._asking_soon(read)

    async def status(self, request: KeyedRequest, seconds: float) -> Status:
        """The end of a request, or how it stands after `seconds`. On idem's loop. Raises StoreUnavailable."""

        from idem.outbox.database.pool import records

        async def read() -> Status | None:
            async with (await self.database()).connection() as connection:
                asked = records(connection).execute(pyformat(STATUS), columns([request.identity]))
                row = await (await asked).fetchone()
                return None if row is None else status_of(row)

        found = await Patience(seconds, ours=True).wait_async(lambda: self._asking_soon(read))
        return InProgress(None, None, MINIMUM_RETRY_AFTER) if found is None else found

    async def database(self) -> Database:
        """idem's own pool. On idem's loop."""
        if self._open is None:
            self._open = asyncio.Lock()
        async with self._open:
            if self._database is None:
                self._database = await self._opened()
            return self._database

    async def _opened(self) -> Database:
        from idem.outbox.database import session
        from idem.outbox.database.pool import AWAY, Database
        from idem.outbox.recovery.guard import Guard

        address, guard = self._idem.database_address, Guard(self._idem.accepting(), self._idem.durability)
        # A pooler in transaction mode is the application's mistake, and no outage that passes.
        with suppress(*AWAY):
            async with await session.connect(address, name="idem application"):
                pass
        database = Database(address, name="idem application", size=CONNECTIONS, on_connect=guard)
        await database.open()
        return database

    async def _take(self, provider: str, headers: Any, body: bytes, account: str | None) -> str:
        if self._renderer is None:
            from idem.outbox.settle.answer_rendering import Renderer

            self._renderer = Renderer()
        from idem.reconciler.webhooks import embedded

        return await embedded.receive(
            await self.database(), self._idem.accepting(), self._renderer, provider, headers, body, account
        )
