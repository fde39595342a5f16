"""`idem status --watch`: again and again, through outages, until Ctrl-C; as a process of its own."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from doctor.pooled import through
from fix_desk import Desk
from fix_line import target

from idem.testing.proxy import Direction, Proxy, ProxyAction

PATIENCE = 60.0
"""Seconds: generous; nothing here takes more than a few."""


@contextlib.asynccontextmanager
async def watching(desk: Desk, *options: str, **streams: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a person starts it; `--every 100ms`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "idem.cli.main", "status", "--watch", "--every", "100ms", *options,
        env=os.environ | desk.environment, stderr=asyncio.subprocess.PIPE,
        **({"stdout": asyncio.subprocess.PIPE} | streams),
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    """What Ctrl-C does: the exit code, and what was said on standard error."""
    process.send_signal(signal.SIGINT)
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_it_prints_a_json_object_a_line_and_ends_on_ctrl_c(desk: Desk) -> None:
    async with watching(desk, "--json") as process:
        assert json.loads(await line(process))["outbox"] == []
        await desk.pending("p")
        while not (found := json.loads(await line(process)))["outbox"]:
            pass
        assert found["outbox"][0]["status"] == "pending"
        assert await ended(process) == (0, "")


async def test_without_a_terminal_it_prints_blocks_with_a_line_between(desk: Desk) -> None:
    await desk.held("h")
    async with watching(desk) as process:
        blocks: list[str] = [""]
        while len(blocks) < 4:
            text = await line(process)
            if set(text.strip()) == {"-"} and len(text) > 40:
                blocks.append("")
            else:
                blocks[-1] += text
        assert all("held" in block and "environment  test" in block for block in blocks[:3])
        assert all("\x1b" not in block for block in blocks)
        assert await ended(process) == (0, "")


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_it_says_the_database_is_away_and_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    swallow = False

    def watcher(_number: int, _direction: Direction, _data: bytes) -> ProxyAction:
        return "swallow" if swallow else "pass"

    async with Proxy(target(desk.spine.url), watcher) as proxy:
        desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, proxy.port)
        async with watching(desk, "--json") as process:
            assert "installation" in json.loads(await line(process))
            if how == "refused":
                await proxy.stop()
            swallow = True
            while "error" not in (found := json.loads(await line(process))):
                pass
            assert set(found) == {"at", "error"} and "database" in found["error"]
            swallow = False
            if how == "refused":
                await proxy.listen()
            while "error" in json.loads(await line(process)):
                pass
            assert await ended(process) == (0, "")


async def test_a_mistake_at_the_start_ends_it(desk: Desk) -> None:
    desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, 9)
    async with watching(desk, "--json") as process:
        # Nobody listens there: that may pass.
        assert "cannot be reached" in json.loads(await line(process))["error"]
        assert await ended(process) == (0, "")
    await desk.spine.execute("DROP SCHEMA idem CASCADE")
    desk.environment["IDEM_DATABASE_URL"] = desk.spine.url
    for options in (("--watch",), ()):
        result = await desk.cli("status", *options)
        assert result.code == 1 and "idem db upgrade" in result.err and "Traceback" not in result.err
    for duration in ("soon", "0s", "1ms"):
        await desk.cli("status", "--watch", "--every", duration, code=2, err="--every")


async def test_on_a_terminal_it_is_redrawn_until_ctrl_c(desk: Desk) -> None:
    await desk.held("h")
    desk.environment["COLUMNS"] = "120"
    ours, theirs = pty.openpty()
    try:
        async with watching(desk, stdin=theirs, stdout=theirs) as process:
            seen = b""
            while seen.count(b"rejected") < 3:
                seen += await asyncio.to_thread(os.read, ours, 65536)
            code, said = await ended(process)
        assert (code, said) == (0, "")
        # Drawn over itself: the cursor goes up and lines are cleared.
        assert b"\x1b[1A" in seen and b"\x1b[2K" in seen
        assert b"Ctrl-C exits" in seen and b"Traceback" not in seen
    finally:
        os.close(ours)
        os.close(theirs)
