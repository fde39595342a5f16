"""`idem run` on a desk's database and bank, and what a test checks while it runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import UUID

from fix_desk import Desk
from fix_waiting import until
from group.conftest import Command, command

from idem.outbox.tenants import tokens


@contextlib.asynccontextmanager
async def running(
    desk: Desk, port: int, *options: str, prefix: tuple[str, ...] = (), **env: str
) -> AsyncIterator[Command]:
    """`idem run` on the desk's database and bank, all daemons alive."""
    arguments = ("run", "--port", str(port), "--log", "json", *options)
    async with command(*arguments, env=desk.environment | env, prefix=prefix) as group:
        await until(lambda: alive(desk, {"worker", "sweeper", "reconciler"}))
        yield group


async def alive(desk: Desk, kinds: set[str]) -> bool:
    rows = await desk.spine.all("SELECT kind FROM idem.daemons WHERE ended_at IS NULL")
    return kinds <= {row["kind"] for row in rows}


def held(desk: Desk) -> tuple[asyncio.Event, asyncio.Event]:
    """Make the bank hold every payment; returns the event that one has begun, and the event that releases them."""
    began, release = asyncio.Event(), asyncio.Event()

    async def hold(_: object) -> None:
        began.set()
        await release.wait()

    desk.spine.bank.when("received", None, hold)
    return began, release


def take_their_time(desk: Desk) -> None:
    """Extend the deadline, so that the test ends the calls and a slow machine does not."""
    file = Path(desk.environment["IDEM_CONFIG"])
    file.write_text(file.read_text().replace('deadline = "2s"', 'deadline = "20s"', 1))


def answers(port: int, path: str = "/readyz") -> bool:
    return status(port, path) == 200


def status(port: int, path: str = "/readyz") -> int | None:
    """The status of an answer; None without an answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return None


async def completed(desk: Desk, intent: UUID) -> bool:
    return (await desk.state(intent))[0] == "completed"


def metrics(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


async def authorized(desk: Desk) -> dict[str, str]:
    """The headers of a client with a new token."""
    _, token = await desk.spine.run(tokens.create, "t", "test")
    return {"Authorization": f"Bearer {token}"}
