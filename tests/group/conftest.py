"""`idem run` and `idem up` as processes of their own, and a look at what they leave."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fix_desk import Desk
from fix_waiting import until


@dataclass
class Command:
    """A running command, and all that it and its children have written."""

    process: asyncio.subprocess.Process
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return (self.out + self.err).decode(errors="replace")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON lines of its log."""
        lines = self.err.decode(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def named(self, event: str, **values: Any) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == event and all(e.get(k) == v for k, v in values.items())]

    def children(self) -> dict[str, int]:
        """The processes of its group that live, as it has told of them: pid by name."""
        living = left_of(f"idem.cli.group.parent_watch {self.pid} ")
        return {e["process"]: e["pid"] for e in self.named("process_started") if e["pid"] in living}

    async def end(self, seconds: float = 40) -> int:
        """Wait for its end, and for that of everybody who writes into its pipes."""
        code = await asyncio.wait_for(self.process.wait(), seconds)
        await asyncio.wait_for(asyncio.gather(*self.readers), seconds)
        return code

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.end()


def processes() -> dict[int, str]:
    """The command lines of everything that runs."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text := (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found[int(place.name)] = text
    return found


def left_of(*marks: str) -> dict[int, str]:
    """The processes whose command line has one of these marks."""
    return {pid: text for pid, text in processes().items() if any(mark in text for mark in marks)}


async def what_ran_is_finished(desk: Desk, intents: list[UUID]) -> None:
    """Of calls in two slots those that ran have ended, and no other was begun."""
    states = [await desk.state(intent) for intent in intents]
    done = states.count(("completed", None))
    assert 1 <= done <= 2 and states.count(("in_progress", "pending")) == len(states) - done
    assert len(desk.spine.bank.log.sends()) == done


@contextlib.asynccontextmanager
async def command(*arguments: str, env: Any, cwd: Path | None = None, prefix: Any = ()) -> AsyncIterator[Command]:
    """`idem` with these arguments; killed if the test leaves it behind."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *prefix, sys.executable, "-m", "idem.cli.main", *arguments,
        env=inherited | dict(env), cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
        # A shell that runs tests in the background has them ignore Ctrl-C, and their children too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    running = Command(process)

    async def read(stream: asyncio.StreamReader | None, into: bytearray) -> None:
        assert stream is not None
        while data := await stream.read(65536):
            into += data

    running.readers = [
        asyncio.create_task(read(process.stdout, running.out)), asyncio.create_task(read(process.stderr, running.err))
    ]  # fmt: skip
    try:
        yield running
    except BaseException:
        sys.stderr.write(running.said)
        raise
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for reader in running.readers:
            reader.cancel()


@pytest.fixture
def linux() -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("looks at /proc")


async def finish_without_supervisor(group: Command, began: asyncio.Event, release: asyncio.Event) -> None:
    """Kill the supervisor while a call runs, let the call end, and wait until its processes have ended."""
    await asyncio.wait_for(began.wait(), 20)
    group.process.kill()
    await asyncio.sleep(0.5)
    release.set()
    await until(lambda: not left_of(f"parent_watch {group.pid} "), seconds=20)
