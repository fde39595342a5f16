"""A proxy between daemons and the database."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

from fix_spine import Spine

from idem.testing.proxy import Proxy


@contextlib.asynccontextmanager
async def database_proxy(spine: Spine) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of this test's PostgreSQL, and the URL through it."""
    parts = urlsplit(spine.url)
    query = parse_qs(parts.query)
    target: tuple[str, int] | str = (parts.hostname or "127.0.0.1", parts.port or 5432)
    if "host" in query:
        target = f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}"
    async with Proxy(target) as proxy:
        yield proxy, f"postgresql://{parts.username}@127.0.0.1:{proxy.port}{parts.path}"


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    """Wait for something to become true."""
    ends = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < ends, "it did not happen"
        await asyncio.sleep(0.05)
