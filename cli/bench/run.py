"""Runs a whole bench: its server, its database, its parts, and the medians of its repetitions."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from idem.cli.bench import database
from idem.cli.bench.display import BenchSteps
from idem.cli.bench.driver import driver
from idem.cli.bench.measured import Cost, Latency, median, median_latency
from idem.cli.bench.settings import BenchPart, BenchSettings
from idem.cli.bench.stage import Stage
from idem.outbox.database import session
from idem.testing.embedded import acquire

HOME = Path(".idem") / "bench"
"""The folder of the embedded server, below the current one."""
FLOOR = 2
"""How many times as many rows the floor has: it is quick."""
LINGER = 0.5
"""Seconds that the embedded server stays after the bench."""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Medians, by workload, and where they were measured. `here`: whether the server's processes can be seen."""

    settings: BenchSettings
    costs: dict[str, Cost]
    latency: Latency | None
    here: bool
    about: dict[str, str]
    load: tuple[float, float]


@dataclass
class _Found:
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    latencies: list[Latency] = field(default_factory=list)

    def add(self, **costs: Cost) -> None:
        for name, cost in costs.items():
            self.costs.setdefault(name, []).append(cost)


def run(settings: BenchSettings, url: str, say: Callable[[str], None], *, quiet: bool = False) -> BenchResult:
    """Measure, in a database of its own on this server. Raises ConfigError if the role may not make one, JobFailed if a
    process fails.
    """
    load = _load()
    database.drop_left(url, say)
    with tempfile.TemporaryDirectory(prefix="idem-bench-") as folder, database.database(url, say) as made:
        stage = Stage(settings, made, Path(folder), BenchSteps(quiet=quiet))
        with stage.set_up():
            found = _Found()
            for _ in range(settings.repeat):
                measure(settings, stage, found)
            return BenchResult(
                settings,
                {name: median(costs) for name, costs in found.costs.items()},
                median_latency(found.latencies) if found.latencies else None,
                stage.server is not None,
                about(made),
                (load, _load()),
            )


def measure(settings: BenchSettings, stage: Stage, found: _Found) -> None:
    """One repetition of every part."""
    parts = settings.parts
    if BenchPart.DRAIN in parts:
        accept, drain = stage.drain("nothing", settings.intents)
        found.add(**({"accept": accept} if BenchPart.ACCEPT in parts else {}), drain=drain)
    elif BenchPart.ACCEPT in parts:
        found.add(accept=stage.accept("bench.nothing", settings.intents))
    for part in (BenchPart.HTTP, BenchPart.TLS):
        if part in parts:
            found.add(**{part.value: stage.drain(part.value, settings.calls)[1]})
    if BenchPart.LATENCY in parts:
        found.latencies.append(stage.latency(settings.single))
    if parts & {BenchPart.ACCEPT, BenchPart.DRAIN}:
        floor = stage.floor(settings.intents * FLOOR, drain=BenchPart.DRAIN in parts)
        found.add(**{name: cost for name, cost in floor.items() if name != "floor_accept" or BenchPart.ACCEPT in parts})


SETTINGS = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('shared_buffers'), current_setting('wal_level')
"""


def about(url: str) -> dict[str, str]:
    """The versions and settings that the numbers depend on."""
    with session.connect_sync(url, name=database.NAME) as connection:
        row = connection.execute(SETTINGS).fetchone()
    assert row is not None
    return {
        "idem": version("idem-outbox"),
        "python": platform.python_version(),
        "psycopg": version("psycopg"),
        "client": f"{driver()} {version(driver())}",
        "cores": str(os.cpu_count()),
        **dict(zip(("postgresql", "fsync", "synchronous_commit", "shared_buffers", "wal_level"), row, strict=True)),
    }


@contextlib.contextmanager
def embedded() -> Iterator[str]:
    """The URL of an embedded server."""
    with acquire(HOME, linger=LINGER) as server:
        yield server.url


def _load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]
