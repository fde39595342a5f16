"""Runs one bench in its database: the accepting client, the workers, the HTTP providers and the floor, in turn."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from idem.cli.bench import floor, installation, lanes, workers
from idem.cli.bench.counters import CounterReader
from idem.cli.bench.database import NAME
from idem.cli.bench.display import BenchSteps
from idem.cli.bench.job import Job, JobFailed, python
from idem.cli.bench.measured import Cost, Latency, percentile
from idem.cli.bench.meter import Meter, cost
from idem.cli.bench.settings import BenchPart, BenchSettings
from idem.cli.bench.usage import ServerProcesses, resident
from idem.cli.bench.workers import Workers
from idem.outbox.database import session

WARM = 200
"""Intents of another provider that a process handles before it is measured."""
WARM_SINGLE = 25
"""The same, of a client that accepts one at a time."""
INTERVAL = 0.02
"""Seconds between two intents that are accepted one at a time."""
POLL = 0.05
STUCK = 60.0
"""Seconds without any progress after which a bench gives up."""
SCHEMA = "idem"

OPEN = "SELECT count(*) FROM idem.outbox o WHERE o.provider = %(provider)s"
OPEN_STATUSES = """
SELECT string_agg(format('%%s %%s', s.number, s.status), ', ')
  FROM (SELECT o.status, count(*) AS number FROM idem.outbox o WHERE o.provider = %(provider)s GROUP BY 1) s
"""
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
LAST = "SELECT extract(epoch FROM max(i.settled_at))::float8 FROM idem.intents i WHERE i.provider = %(provider)s"
SETTLED = """
SELECT i.id::text, i.provider_reference, extract(epoch FROM i.settled_at)::float8
  FROM idem.intents i WHERE i.provider = 'moment' AND i.idempotency_key LIKE %(prefix)s || '%%'
"""


class Stage:
    """One bench. `url` is of its own database."""

    def __init__(self, settings: BenchSettings, url: str, folder: Path, display: BenchSteps) -> None:
        self._settings = settings
        self._url = url
        self._folder = folder
        self._display = display
        self._numbers = 0
        self.origins: dict[str, str] = {}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
        self._environment = inherited | {
            "IDEM_CONFIG": str(folder / "idem.toml"),
            "IDEM_DATABASE_URL": url,
            installation.TOKEN: "bench",
        }

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """The HTTP providers, the configuration and the session that reads what is counted."""
        with contextlib.ExitStack() as stack:
            self._connection = stack.enter_context(session.connect_sync(self._url, name=NAME))
            self._watch = CounterReader(self._connection)
            database = self._connection.info.dbname
            self.server = ServerProcesses.of(self._watch.pid, database)
            self._meter = Meter(self._watch, self.server)
            for part in (BenchPart.HTTP, BenchPart.TLS):
                if part in self._settings.parts:
                    self.origins[part] = self._provider(stack, tls=part is BenchPart.TLS)
            installation.write(self._folder, self._settings.slots, self.origins)
            self._connection.execute(floor.CREATE)
            yield

    def _provider(self, stack: contextlib.ExitStack, *, tls: bool) -> str:
        """Start an HTTP provider; returns its origin."""
        files = [str(path) for path in installation.certificate(self._folder)] if tls else []
        order = {"latency": self._settings.latency, "files": files}
        return str(stack.enter_context(self._job("idem.cli.bench.provider", order)).result()["origin"])

    def accept(self, operation: str, count: int) -> Cost:
        """Accept so many intents, while no worker runs."""
        order = self._order(operation, count, self._settings.connections, WARM)
        return self._measured(
            f"accept {count} intents", "idem.cli.bench.accepting", order, count, schema=SCHEMA, warm=WARM
        )

    def drain(self, provider: str, count: int) -> tuple[Cost, Cost]:
        """What accepting so many intents costs, and what settling them costs when they lie there."""
        lanes.hold(self._url, provider)
        accepted = self.accept(f"bench.{provider}", count)
        self._watch.maintain()
        before = self._watch.counters(SCHEMA)
        with (
            self._display.step(f"settle {count} intents by provider {provider}", count) as advance,
            self._workers() as running,
        ):
            self._until_empty("warm", running)
            ((start,), began) = self._watch.ask(NOW), self._meter.now(running.pids)
            lanes.release(self._url, provider)
            self._until_empty(provider, running, lambda left: advance(count - left))
            ended, rss = self._meter.now(running.pids), resident(running.pids)
        (last,) = self._watch.ask(LAST, provider=provider)
        counted = self._watch.counters(SCHEMA).since(before)
        assert isinstance(start, float) and isinstance(last, float)
        return accepted, cost(count, last - start, began, ended, counted=counted, counted_intents=count + WARM, rss=rss)

    def latency(self, count: int) -> Latency:
        """How long an idle worker needs, one intent at a time."""
        warm = self._order("bench.moment", 1, 1, WARM)
        order = {**self._order("bench.moment", count, 1, WARM_SINGLE), "interval": INTERVAL}
        with (
            self._display.step(f"accept and settle {count} intents, one at a time"),
            self._workers() as running,
            self._job("idem.cli.bench.accepting", warm) as first,
            self._job("idem.cli.bench.accepting", order) as job,
        ):
            for each in (first, job):
                each.prepared()
                each.begin()
                result = each.result()
                each.end()
                self._until_empty("moment", running)
                self._until_empty("warm", running)
        committed = result["committed"]
        ahead = self._clock_ahead()
        rows = self._connection.execute(SETTLED, {"prefix": order["prefix"]}).fetchall()
        picked_up = [(int(started) / 1e9 - committed[intent]) * 1e3 for intent, started, _ in rows]
        settled = [(at - ahead - committed[intent]) * 1e3 for intent, _, at in rows]
        return Latency(
            len(rows),
            percentile(picked_up, 0.5),
            percentile(picked_up, 0.99),
            percentile(settled, 0.5),
            percentile(settled, 0.99),
        )

    def floor(self, count: int, *, drain: bool) -> dict[str, Cost]:
        """The floor of accept, and of `drain`, which empties what the other has accepted."""
        first = self._numbers = self._numbers + count
        work = {"connections": self._settings.connections, "numbers": [first, first + count]}
        found = {"floor_accept": self._floor("accept", count, work)}
        if drain:
            self._watch.maintain()
            found["floor_drain"] = self._floor("drain", count, {**work, "connections": 1})
        return found

    def _floor(self, work: str, count: int, order: dict[str, object]) -> Cost:
        return self._measured(
            f"the floor of {work}", "idem.cli.bench.floor", {**order, "work": work}, count, schema=floor.SCHEMA
        )

    def _measured(
        self, step: str, module: str, order: dict[str, object], count: int, *, schema: str, warm: int = 0
    ) -> Cost:
        """What a job of `count` intents costs, in a process of its own. `warm`: how many come before it is measured."""
        before = self._watch.counters(schema)
        with self._display.step(step), self._job(module, order) as job:
            job.prepared()
            began = self._meter.now()
            job.begin()
            result = job.result()
            ended = self._meter.now()
            job.end()
        counted = self._watch.counters(schema).since(before)
        return cost(
            count,
            result["seconds"],
            began,
            ended,
            counted=counted,
            counted_intents=count + warm,
            cpu=result["cpu"],
            rss=result["rss"],
        )

    def _order(self, operation: str, count: int, connections: int, warm: int) -> dict[str, object]:
        self._numbers += 1
        return {
            "operation": operation,
            "count": count,
            "connections": connections,
            "warm": warm,
            "prefix": f"{self._numbers}-",
        }

    def _job(self, module: str, order: dict[str, object]) -> Job:
        log = self._folder / f"{module.rpartition('.')[2]}.log"
        return Job(python(module), order, self._environment, log)

    def _workers(self) -> contextlib.AbstractContextManager[Workers]:
        return workers.running(self._environment, self._folder, self._settings.processes)

    def _until_empty(self, provider: str, running: Workers, advance: Callable[[int], None] = lambda left: None) -> None:
        """Wait until this provider has no open call any more. Raises JobFailed."""
        last, since = -1, time.monotonic()
        while True:
            (left,) = self._watch.ask(OPEN, provider=provider)
            assert isinstance(left, int)
            if left == 0:
                return
            advance(left)
            assert running.pids
            if left != last:
                last, since = left, time.monotonic()
            elif time.monotonic() - since > STUCK:
                (statuses,) = self._watch.ask(OPEN_STATUSES, provider=provider)
                raise JobFailed(f"calls of {provider} do not end: {statuses}. See {self._folder}")
            time.sleep(POLL)

    def _clock_ahead(self) -> float:
        """How many seconds the database's clock is ahead of ours; 0 if less than the time to read it."""
        before = time.time()
        (found,) = self._watch.ask(NOW)
        after = time.time()
        assert isinstance(found, float)
        ahead = found - (before + after) / 2
        return ahead if abs(ahead) > after - before else 0.0
