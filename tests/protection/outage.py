"""An outage of one provider of two, with real processes: banks, worker, reconciler, sweeper.

All times are divided by one factor. The line to provider `a` goes through a proxy, which first swallows its answers and
then refuses to connect.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from fix_accept import Acceptor
from fix_desk import run
from fix_sql import driven, query
from sqlalchemy import create_engine

from idem.testing.bank import read_log
from idem.testing.proxy import Direction, Proxy, ProxyAction

PROVIDER = Path(__file__).with_name("outage_provider.toml").read_text()
SETTINGS = """
environment = "test"
worker = { slots = 8, poll = "100ms", lease = LEASE, margin = MARGIN }
reconciler = { interval = "100ms", lease = LEASE }
sweeper = { interval = "200ms" }
"""


@dataclass(frozen=True)
class Times:
    """Seconds as they are meant; `of` is what they are here."""

    factor: float
    outage: float = 600.0
    retention: float = 86400.0
    deadline: float = 20.0
    flight: float = 60.0
    horizon: float = 10.0
    schedule: tuple[float, ...] = (5, 30, 120, 600, 3600, 21600, 86400)

    def of(self, seconds: float) -> float:
        return seconds / self.factor

    @property
    def window(self) -> float:
        """How long after its first send a call may be replayed."""
        return self.retention - 2 * self.flight

    def settings(self, origins: dict[str, str]) -> str:
        text = SETTINGS + "".join(
            PROVIDER.replace("NAME", name).replace("ORIGIN", origin) for name, origin in origins.items()
        )
        values = {
            "DEADLINE": self.deadline, "FLIGHT": self.flight, "RETENTION": self.retention, "HORIZON": self.horizon,
            "LEASE": 120.0, "MARGIN": 10.0,
        }  # fmt: skip
        for name, seconds in values.items():
            text = text.replace(name, f"{self.of(seconds):.3f}")
        return text.replace("SCHEDULE", json.dumps([round(self.of(s), 3) for s in self.schedule]))


@dataclass
class Line:
    """The proxy's watcher: when which key was sent to the bank, and what the outage does to the answers."""

    mute: bool = False
    sent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __call__(self, _: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_client":
            return "swallow" if self.mute else "pass"
        if data.startswith(b"POST") and (key := re.search(rb"idempotency-key: (\S+)", data, re.IGNORECASE)):
            self.sent[key[1].decode()].append(time.time())
        return "pass"


@dataclass
class Result:
    """What an outage has done."""

    before: float
    during: float
    intents: int
    completed: int
    effects: int
    redrives: int
    letters: dict[str, int]
    late_sends: int
    window_ended: float | None
    alarm_metric: float | None
    alarm_doctor: float | None


class World:
    """Two banks, their lines, the daemons, and somebody who keeps asking for payments."""

    def __init__(self, folder: Path, url: str, times: Times) -> None:
        self.folder, self.url, self.times = folder, url, times
        self.line = Line()
        self.environment = {"IDEM_CONFIG": str(folder / "idem.toml"), "IDEM_DATABASE_URL": url, "BANK_TOKEN": "token"}
        self._engine = create_engine(driven(url))
        self._count = 0
        self._started: list[subprocess.Popen[str]] = []
        self.metrics = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        with contextlib.ExitStack() as stack:
            banks = {name: self._bank(stack, name) for name in ("a", "b")}
            port = int(banks["a"].rpartition(":")[2])
            async with Proxy(("127.0.0.1", port), self.line) as proxy:
                origins = {"a": f"http://127.0.0.1:{proxy.port}", "b": banks["b"]}
                (self.folder / "idem.toml").write_text(self.times.settings(origins))
                os.environ["BANK_TOKEN"] = "token"
                self._acceptor = Acceptor.load(self.folder / "idem.toml")
                for name in ("worker", "reconciler"):
                    self._start(stack, name, "run", "--log-level", "error")
                with socket.socket() as found:
                    found.bind(("127.0.0.1", 0))
                    free = found.getsockname()[1]
                self._start(stack, "sweeper", "run", "--log-level", "error", "--metrics-port", str(free))
                self.metrics = f"http://127.0.0.1:{free}/metrics"
                yield proxy
        self._engine.dispose()

    def accept(self, operation: str, number: int) -> None:
        with self._engine.begin() as connection:
            for _ in range(number):
                self._count += 1
                self._acceptor.accept(connection, "t", operation, f"k{self._count}", {"amount": 100})

    def left(self, provider: str) -> int:
        return int(query(self.url, f"SELECT count(*) FROM idem.outbox WHERE provider = '{provider}'")[0][0])

    def _bank(self, stack: contextlib.ExitStack, name: str) -> str:
        retention = f"{self.times.of(self.times.retention):.3f}s"
        bank = self._process(
            stack, [sys.executable, "-m", "idem.cli.main", "bank", "run", "--log", str(self.folder / f"{name}.jsonl"),
                    "--account", f"main:token:stored:{retention}"]
        )  # fmt: skip
        assert bank.stdout is not None
        found = re.search(r"http://\S+?:\d+", bank.stdout.readline())
        assert found is not None
        return found[0]

    def _start(self, stack: contextlib.ExitStack, *arguments: str) -> subprocess.Popen[str]:
        program = [sys.executable, str(Path(__file__).parent / "scaled.py"), str(self.times.factor), *arguments]
        return self._process(stack, program)

    def check(self) -> None:
        """Raises AssertionError with what a process said that has ended."""
        for process in self._started:
            assert process.poll() is None, process.communicate()

    def _process(self, stack: contextlib.ExitStack, arguments: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            arguments, env=os.environ | self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._started.append(process)
        stack.callback(process.communicate, timeout=60)
        stack.callback(process.terminate)
        return process


async def feed(world: World, stop: asyncio.Event) -> None:
    """Ten payments a second through `a`, and a queue for `b` that never gets empty."""
    while not stop.is_set():
        if (short := 150 - await asyncio.to_thread(world.left, "b")) > 0:
            await asyncio.to_thread(world.accept, "pay.b", short)
        await asyncio.to_thread(world.accept, "pay.a", 2)
        await asyncio.sleep(0.2)


async def watch(world: World, stop: asyncio.Event, seen: dict[str, float]) -> None:
    """When the metric, and when the doctor, first said that the replay window of something gets short."""
    limit, looked = world.times.of(world.times.window) / 2, 0.0
    async with httpx.AsyncClient(verify=False) as http:
        while not stop.is_set():
            try:
                text = (await http.get(world.metrics)).text
            except httpx.TransportError:
                text = ""
            left = re.findall(r"^idem_replay_window_left_seconds\{.*\} (\S+)$", text, re.MULTILINE)
            if left and min(map(float, left)) < limit:
                seen.setdefault("metric", time.time())
            if "doctor" not in seen and time.time() > looked + 1:
                looked = time.time()
                found = await asyncio.to_thread(run, ["doctor", "--json"], world.environment)
                if any(f["check"] == "replay_window" and f["level"] == "error" for f in found.data["findings"]):
                    seen["doctor"] = time.time()
            await asyncio.sleep(0.2)


async def outage(folder: Path, url: str, times: Times) -> Result:
    """One outage of provider a: for a tenth of it answers are lost, then nobody is there."""
    world, stop, seen = World(folder, url, times), asyncio.Event(), dict[str, float]()
    length = times.of(times.outage)
    async with world.running() as proxy:
        feeding = asyncio.create_task(feed(world, stop))
        while len(world.line.sent) < 10:
            world.check()
            await asyncio.sleep(0.1)
        # From the beginning, because looking costs the machine something too.
        watching = asyncio.create_task(watch(world, stop, seen))
        began = time.time()
        await asyncio.sleep(length / 2)
        broke = time.time()
        world.line.mute = True
        await asyncio.sleep(length / 10)
        await proxy.stop()
        await asyncio.sleep(length * 9 / 10)
        world.line.mute = False
        await proxy.listen()
        back = time.time()
        stop.set()
        await asyncio.gather(feeding, watching)
        while await asyncio.to_thread(world.left, "a") and time.time() < back + 120:
            await asyncio.sleep(0.2)
    return _result(world, seen, (began, broke, back))


def _result(world: World, seen: dict[str, float], at: tuple[float, float, float]) -> Result:
    began, broke, back = at
    window = world.times.of(world.times.window)
    done = [each.at for each in read_log(world.folder / "b.jsonl").requests]
    log = read_log(world.folder / "a.jsonl")
    unknown = [sent[0] for sent in world.line.sent.values() if broke <= sent[0] < back]
    letters = query(world.url, "SELECT reason, count(*) FROM idem.dead_letters GROUP BY reason")
    ((intents, completed, redrives),) = query(
        world.url,
        "SELECT count(*), count(*) FILTER (WHERE state = 'completed'),"
        " (SELECT count(*) FROM idem.evidence WHERE kind = 'redrive') FROM idem.intents WHERE provider = 'a'",
    )
    return Result(
        before=sum(began <= each < broke for each in done) / (broke - began),
        during=sum(broke <= each < back for each in done) / (back - broke),
        intents=intents,
        completed=completed,
        effects=len(log.payments()),
        redrives=redrives,
        letters={str(reason): int(number) for reason, number in letters},
        late_sends=sum(later > sent[0] + window for sent in world.line.sent.values() for later in sent[1:]),
        window_ended=min(unknown) + window if unknown and min(unknown) + window < back else None,
        alarm_metric=seen.get("metric"),
        alarm_doctor=seen.get("doctor"),
    )
