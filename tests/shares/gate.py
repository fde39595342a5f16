"""A provider that holds each call until the test lets it go."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from fix_accept import Acceptor
from fix_spine import Spine
from fix_sql import query
from sending.box import OPERATION, idem_of

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.database.channel import CHANNEL
from idem.outbox.database.pool import Database
from idem.outbox.values import clock
from idem.outbox.worker.worker import Worker
from idem.outcomes import Succeeded
from idem.sending import Sending, SendRequest

BULK = 100
"""What the bulk run pays, and nobody else does."""


class Gate:
    """A provider whose calls end one by one, when the test lets them; with a worker of four slots that hardly polls."""

    def __init__(self, database: Database, url: str, path: Path) -> None:
        self._database, self._url, self._path = database, url, path
        self.under_way: Counter[int] = Counter()
        self._ends: list[asyncio.Future[None]] = []

    async def send(self, request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        amount = request.json["amount"]
        self.under_way[amount] += 1
        end = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        try:
            await end
        finally:
            self.under_way[amount] -= 1
        return Succeeded(request.key)

    async def end_one(self) -> None:
        under_way, end = self.under_way.total(), self._ends.pop(0)
        if not end.done():
            end.set_result(None)
        while self.under_way.total() == under_way:
            await asyncio.sleep(0)

    async def reaches(self, **expected: int) -> None:
        """Wait until so many calls of the bulk run and of others are under way."""
        while (self.under_way[BULK], self.under_way[1]) != (expected["bulk"], expected["others"]):
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def working(self, *, shared: bool, poll: float = 60, **settings: Any) -> AsyncIterator[Callable[..., None]]:
        known = idem_of(self._path, self.send, **{"deadline": "40s"} | settings).catalogue()
        spine = Spine(
            self._database, cast(Any, None), known, Acceptor(known.operations, known.providers), self._url,
            WorkerSettings(lease=60, margin=0.5, slots=4, poll=poll),
        )  # fmt: skip
        worker = Worker(spine.database, known, spine.settings)
        if shared:
            for tenant in ("a", "b"):
                worker.lanes[0]._gate.tenants.claimed([tenant], clock.boottime(), 4, tenant)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))

        def accept(tenant: str, rows: int = 1) -> None:
            for _ in range(rows):
                amount = BULK if tenant == "bulk" else 1
                spine.accept(uuid4().hex, amount, operation=OPERATION, tenant=tenant)
            # As the library does after the commit: no poll comes in time.
            query(self._url, "SELECT pg_notify(%s, '')", (CHANNEL,))

        try:
            yield accept
        finally:
            stop.set()
            while not running.done():
                for end in self._ends:
                    if not end.done():
                        end.set_result(None)
                await asyncio.sleep(0.01)
            await running


@pytest.fixture
def gate(database: Database, db_url: str, tmp_path: Path) -> Gate:
    return Gate(database, db_url, tmp_path / "idem.toml")
