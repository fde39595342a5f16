"""Runs idem, its floor and the peers on one server, in turn, and gives the medians."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import environments
from peers import Peer

from idem.cli.bench import database
from idem.cli.bench.counters import CounterReader
from idem.cli.bench.job import Job, JobFailed
from idem.cli.bench.meter import MICROSECONDS, Meter
from idem.cli.bench.stage import Stage
from idem.cli.bench.usage import ServerProcesses
from idem.outbox.database import session

IDEM = "idem"
FLOOR = "floor"
LATENCIES = 300
CONNECTIONS = 16
SLOTS = 100


class SideBySide:
    """One comparison. `found`: by system, by quantity, the numbers of all repetitions."""

    def __init__(self, stage: Stage, folder: Path, scale: float) -> None:
        self._stage = stage
        self._folder = folder
        self._scale = scale
        self.found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def idem(self, intents: int, calls: int) -> None:
        """One repetition of idem and of its floor."""
        stage = self._stage
        accept, drain = stage.drain("nothing", self.scaled(intents))
        _, http = stage.drain("http", self.scaled(calls))
        latency = stage.latency(max(10, min(LATENCIES, self.scaled(LATENCIES))))
        bare = stage.floor(self.scaled(intents * 2), drain=True)
        bare_costs = {"enqueue": bare["floor_accept"], "drain": bare["floor_drain"]}
        for system, costs in ((IDEM, {"enqueue": accept, "drain": drain, "http": http}), (FLOOR, bare_costs)):
            for work, cost in costs.items():
                self._add(system, work, rate=cost.rate, cpu=cost.cpu, postgresql=cost.postgresql_cpu, wal=cost.wal)
        self._add(IDEM, "latency", p50=latency.pick_up_p50, p99=latency.pick_up_p99)

    def peer(self, peer: Peer, url: str, watch: CounterReader, server: ServerProcesses | None) -> None:
        """One repetition of a peer, in its database. Raises JobFailed."""
        counts = {"enqueue": peer.enqueue, "drain": peer.drain, "http": peer.http, "latency": LATENCIES}
        meter = Meter(watch, server)
        for work, most in counts.items():
            count = max(10, min(most, self.scaled(most)))
            with self._job(peer, url, work, count) as job:
                job.prepared()
                if work != "latency":
                    watch.maintain()
                began = meter.now()
                job.begin()
                result = job.result()
                ended = meter.now()
                job.end()
            if work == "latency":
                self._add(peer.name, work, p50=result["p50"], p99=result["p99"])
                continue
            server_cpu = None
            if ended.postgresql_cpu is not None and began.postgresql_cpu is not None:
                server_cpu = (ended.postgresql_cpu - began.postgresql_cpu) * MICROSECONDS / count
            self._add(
                peer.name,
                work,
                rate=count / result["seconds"],
                cpu=result["cpu"] * MICROSECONDS / count,
                postgresql=server_cpu,
                wal=(ended.wal - began.wal) / count,
            )

    def install(self, peer: Peer, url: str) -> None:
        """Make its schema, and note its version. Raises JobFailed."""
        with self._job(peer, url, "install", 1) as job:
            self.versions[peer.name] = str(job.result()["version"])

    def medians(self) -> dict[str, dict[str, float]]:
        """By system and quantity, e.g. `drain.rate`."""
        return {
            system: {name: statistics.median(values) for name, values in quantities.items()}
            for system, quantities in self.found.items()
        }

    def scaled(self, count: int) -> int:
        """So many at this scale."""
        return max(1, int(count * self._scale))

    def _add(self, system: str, work: str, **numbers: float | None) -> None:
        for name, value in numbers.items():
            if value is not None:
                self.found[system][f"{work}.{name}"].append(value)

    def _job(self, peer: Peer, url: str, work: str, count: int) -> Job:
        order: dict[str, Any] = {
            "work": work,
            "url": url,
            "count": count,
            "connections": CONNECTIONS,
            "slots": SLOTS,
            "origin": self._stage.origins["http"],
        }
        return Job(peer.command, order, environments.environment(peer), self._folder / f"{peer.name}.log")


def all_in_turn(
    side: SideBySide, url: str, peers: list[Peer], repeat: int, intents: int, calls: int, say: Callable[[str], None]
) -> None:
    """All repetitions: each system once, then each again. A peer that fails is left out, with its reason."""
    with ExitStack() as stack:
        prepared = {}
        for peer in peers:
            say(f"installing {peer.name} ...")
            if wrong := environments.prepare(peer):
                side.missing[peer.name] = wrong
                continue
            made = stack.enter_context(database.database(url, say, schema=False))
            connection = stack.enter_context(session.connect_sync(made, name=database.NAME))
            watch = CounterReader(connection)
            prepared[peer.name] = made, watch, ServerProcesses.of(watch.pid, connection.info.dbname)
            _guarded(side, peer, lambda peer=peer, made=made: side.install(peer, made))
        for number in range(1, repeat + 1):
            say(f"repetition {number} of {repeat}: idem and the floor")
            side.idem(intents, calls)
            for peer in peers:
                if peer.name not in side.missing:
                    began = time.monotonic()
                    _guarded(side, peer, lambda peer=peer: side.peer(peer, *prepared[peer.name]))
                    say(f"repetition {number} of {repeat}: {peer.name} ({time.monotonic() - began:.0f} s)")


def _guarded(side: SideBySide, peer: Peer, do: Callable[[], None]) -> None:
    try:
        do()
    except JobFailed as error:
        side.missing[peer.name] = environments.reason(str(error))
        side.found.pop(peer.name, None)
