"""The shop as server processes, which can be killed at any moment of their endpoint.

One process has loaded everything and forks a server whenever it is asked: starting Python anew for each would cost more
than everything that is tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from adopt.shop import build, define
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

TESTS = Path(__file__).parent.parent


@dataclass
class Server:
    """A running shop."""

    url: str
    pid: int
    street: Street

    def moments(self) -> list[str]:
        """Every moment of its endpoint so far, in order."""
        return httpx.get(f"{self.url}/moments").json()

    def killed(self) -> bool:
        """Wait for its end; whether that was SIGKILL."""
        return bool(self.street.say("wait", pid=self.pid)["signal"] == signal.SIGKILL)


class Street:
    """`with Street() as street:` then `street.server(..)`."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "adopt.proof_server"], cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def say(self, word: str, **said: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"word": word, **said}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    @contextlib.contextmanager
    def server(self, url: str, toml: Path, bank: str, driver: str, *, kill_at: int | None = None) -> Iterator[Server]:
        """A shop over this database. `kill_at`: it kills itself at this moment of its endpoint."""
        told = self.say("start", url=url, toml=str(toml), bank=bank, driver=driver, kill_at=kill_at)
        try:
            yield Server(f"http://127.0.0.1:{told['port']}", told["pid"], self)
        finally:
            self.say("end", pid=told["pid"])


def _main() -> None:
    ended: dict[int, int] = {}

    def wait(pid: int) -> dict[str, Any]:
        if pid not in ended:
            ended[pid] = os.waitpid(pid, 0)[1]
        status = ended[pid]
        return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None}

    for line in sys.stdin:
        said = json.loads(line)
        match said.pop("word"):
            case "start":
                listening = socket.create_server(("127.0.0.1", 0), backlog=256)
                pid = os.fork()
                if pid == 0:
                    os.dup2(2, 1)
                    asyncio.run(_serve(listening=listening, **said))
                    os._exit(0)
                told: dict[str, Any] = {"pid": pid, "port": listening.getsockname()[1]}
                listening.close()
            case "wait":
                told = wait(said["pid"])
            case _:
                if said["pid"] not in ended:
                    os.kill(said["pid"], signal.SIGKILL)
                told = wait(said["pid"])
        print(json.dumps(told), flush=True)  # noqa: T201


async def _serve(*, listening: socket.socket, url: str, toml: str, bank: str, driver: str, kill_at: int | None) -> None:
    idem, charge = define(Path(toml))
    with idem.pointed_at("ledger", bank):
        app = build(charge, url, driver=driver)
        engine: AsyncEngine = app.state.engine
        async with engine.connect():
            pass  # what the driver asks a server that it does not know is no part of the endpoint
        seen: list[str] = []

        def moment(name: str) -> None:
            if kill_at == len(seen):
                os.kill(os.getpid(), signal.SIGKILL)
            seen.append(name)

        _watch(engine, moment)
        app.get("/moments")(lambda: seen)
        await uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off")).serve(sockets=[listening])


def _watch(engine: AsyncEngine, moment: Callable[[str], None]) -> None:
    """Call `moment` before and after each BEGIN, statement and COMMIT that the driver is given."""

    for when in ("before", "after"):
        said = lambda _c, _cursor, statement, *_, when=when: moment(f"{when} {_short(statement)}")  # noqa: E731
        event.listen(engine.sync_engine, f"{when}_cursor_execute", said)
    dialect: Any = engine.sync_engine.dialect
    for name in ("do_begin", "do_commit"):
        setattr(dialect, name, _wrapped(getattr(dialect, name), name.removeprefix("do_").upper(), moment))


def _wrapped(do: Callable[[Any], None], name: str, moment: Callable[[str], None]) -> Callable[[Any], None]:
    def wrapped(connection: Any) -> None:
        moment(f"before {name}")
        do(connection)
        moment(f"after {name}")

    return wrapped


def _short(statement: str) -> str:
    words = statement.split()
    found = next((word for word in words if "idem." in word), None)
    return found.split("(")[0] if found else " ".join(words[:3])


if __name__ == "__main__":
    _main()
