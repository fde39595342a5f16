"""Reads everything that is measured at two moments, and makes the cost of an intent of the difference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from idem.cli.bench import usage
from idem.cli.bench.counters import CounterReader, Counters
from idem.cli.bench.measured import Cost

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Moment:
    """What is counted at once, at a moment."""

    at: float
    wal: int
    postgresql_cpu: float | None
    cpu: float | None


class Meter:
    """The meter of one bench."""

    def __init__(self, watch: CounterReader, server: usage.ServerProcesses | None) -> None:
        self._watch = watch
        self._server = server

    def now(self, pids: Sequence[int] = ()) -> Moment:
        """What the server and these processes have used by now."""
        server = self._server.cpu(without=self._watch.pid) if self._server is not None else None
        return Moment(time.monotonic(), self._watch.wal(), server, usage.cpu(pids))


def cost(
    intents: int,
    seconds: float,
    began: Moment,
    ended: Moment,
    *,
    counted: Counters,
    counted_intents: int,
    cpu: float | None = None,
    rss: int | None = None,
) -> Cost:
    """The cost of an intent. `counted` is about `counted_intents`: also about those that warmed up. `cpu`: seconds, if
    the process has measured them itself.
    """

    def each(total: float | None, of: int = counted_intents) -> float | None:
        return None if total is None else total / of

    if cpu is None and ended.cpu is not None and began.cpu is not None:
        cpu = ended.cpu - began.cpu
    server = None
    if ended.postgresql_cpu is not None and began.postgresql_cpu is not None:
        server = (ended.postgresql_cpu - began.postgresql_cpu) * MICROSECONDS
    return Cost(
        intents=intents,
        rate=intents / seconds,
        cpu=each(None if cpu is None else cpu * MICROSECONDS, intents),
        postgresql_cpu=each(server, intents),
        statements=each(counted.statements),
        commits=each(counted.commits),
        wal=each(ended.wal - began.wal, intents),
        dead=each(counted.dead),
        disk=each(counted.disk),
        rss=rss,
    )
