"""A connection to the database that can be cut: a TCP proxy in front of it, and an API behind the proxy."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import httpx
from fix_api import Client, running
from fix_spine import Spine
from psycopg.conninfo import conninfo_to_dict

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.tenants import tokens
from idem.testing.proxy import Direction, Proxy, ProxyAction

SETTLES = (b"json_to_recordset", b"'lock_timeout', '10ms'")
"""What only the statements say that settle: the gate's, and that of the commonest end."""


def settles(data: bytes) -> bool:
    """Whether these bytes to the database are the first of a statement that settles, on a connection that is new."""
    return any(mark in data for mark in SETTLES)


BOUND = 20.0
"""In seconds; generous, because `timeout` is 1 here."""


@dataclass
class Line:
    """The connection to the database. `down`: nothing passes. `cut_answers`: how many answers of accept get lost."""

    down: bool = False
    cut_answers: int = 0
    sent: int = 0
    """Messages to the database, at least one for each statement."""

    def __call__(self, _number: int, direction: Direction, data: bytes) -> ProxyAction:
        self.sent += direction == "to_server"
        if self.down:
            return "cut"
        if self.cut_answers and direction == "to_client" and (b"accepted" in data or b"retrying" in data):
            self.cut_answers -= 1
            return "cut"
        return "pass"


@contextlib.asynccontextmanager
async def through_a_line(spine: Spine, **settings: int | float) -> AsyncIterator[tuple[Client, Line]]:
    """An API whose connections to the database can be cut."""
    line = Line()
    _, token = await spine.run(tokens.create, "t", "outage")
    async with Proxy(target(spine.url), line) as proxy:
        asked = ApiSettings.model_validate({"timeout": 1, "pool": 4, **settings})
        async with (
            running(through(spine.url, proxy), spine.catalogue, asked) as (api, url),
            httpx.AsyncClient(
                base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=BOUND, verify=False
            ) as http,
        ):
            yield Client(url, token, http, api), line


def target(url: str) -> tuple[str, int] | str:
    """The address of this database for a proxy."""
    parts = conninfo_to_dict(url)
    host, port = str(parts.get("host", "127.0.0.1")), int(parts.get("port") or 5432)
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def through(url: str, proxy: Proxy) -> str:
    """The URL of the same database through the proxy."""
    parts = conninfo_to_dict(url)
    user, password = quote(str(parts["user"])), quote(str(parts.get("password") or ""))
    return f"postgresql://{user}{':' + password if password else ''}@{proxy.host}:{proxy.port}/{parts['dbname']}"


@contextlib.asynccontextmanager
async def database_proxy(spine: Spine) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of this test's PostgreSQL, and the URL through it."""
    async with Proxy(target(spine.url)) as proxy:
        yield proxy, through(spine.url, proxy)


KEY = b"K\x00\x00\x00\x0c"
"""The start of the message in which PostgreSQL names its process when a session begins."""


class SessionPooler(Proxy):
    """Names another process than the server's when a session begins, like PgBouncer."""

    named = 0

    async def _pump(
        self, number: int, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while direction == "to_client" and (data := await reader.read(65536)):
            at = data.find(KEY) + len(KEY)
            if at >= len(KEY):
                self.named += 1
                writer.write(data[:at] + (1).to_bytes(4) + data[at + 4 :])
                break
            writer.write(data)
        await super()._pump(number, direction, reader, writer)
