"""The HTTP API over the spine: a real server on a real port, in the test's loop, with tokens of two tenants."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
from fix_kept import KeptDatabase
from fix_server import KEPT
from fix_spine import Spine

from idem.outbox.api.app import Api
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.database.pool import Timeouts
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.http_server.serving import serve
from idem.outbox.tenants import tokens

PAY = "/v1/intents/pay.keyed"


@dataclass
class Client:
    """One tenant's view of a running API."""

    url: str
    token: str
    http: httpx.AsyncClient
    api: Api = field(repr=False)

    async def ask(
        self, key: str | None = "k1", amount: int = 100, *, path: str = PAY, wait: int | None = None, **options: Any
    ) -> httpx.Response:
        """POST one request; other `options` are those of httpx."""
        headers = {"Idempotency-Key": key} if key is not None else {}
        if wait is not None:
            headers["Prefer"] = f"wait={wait}"
        headers |= options.pop("headers", {})
        if "content" not in options:
            options.setdefault("json", {"amount": amount})
        return await self.http.post(path, headers=headers, **options)

    async def told(self, key: str | None = "k1", amount: int = 100, **options: Any) -> tuple[int, str]:
        """The HTTP status of the answer, and the code of the problem."""
        answer = await self.ask(key, amount, **options)
        return answer.status_code, answer.json()["code"]

    def intent(self, response: httpx.Response) -> UUID:
        return UUID(response.json()["intent"])


@contextlib.asynccontextmanager
async def running(
    url: str, catalogue: Catalogue, settings: ApiSettings | None = None
) -> AsyncIterator[tuple[Api, str]]:
    """An API on its own port, and the URL that it listens on."""
    settings = settings or ApiSettings(port=0)
    bounds = Timeouts(settings.timeout, settings.timeout, 30, settings.timeout)
    database = KeptDatabase(url, name="idem-test-api", size=settings.pool, timeouts=bounds)
    await database.open()
    api = Api(database, catalogue, settings)
    stop, done, at = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()
    beside = asyncio.create_task(api.run(done))
    serving = asyncio.create_task(
        serve(api.app, "127.0.0.1", 0, stop, ready=lambda host, port: at.set_result(f"http://{host}:{port}"))
    )
    try:
        yield api, await asyncio.wait_for(at, 10)
    finally:
        api.drain()
        stop.set()
        await asyncio.wait_for(serving, 60)
        done.set()
        await asyncio.wait_for(beside, 60)
        await database.close()


@contextlib.asynccontextmanager
async def client(
    spine: Spine, tenant: str = "t", settings: ApiSettings | None = None, catalogue: Catalogue | None = None
) -> AsyncIterator[Client]:
    """An API of its own with a client of this tenant."""
    _, token = await spine.run(tokens.create, tenant, "test")
    async with (
        running(spine.url, catalogue or spine.catalogue, settings) as (api, url),
        httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, limits=KEPT, verify=False
        ) as http,
    ):
        yield Client(url, token, http, api)
