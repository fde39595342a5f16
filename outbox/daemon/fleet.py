"""How many processes make calls now, by their heartbeats: read with one's own, never for a call."""

from collections.abc import Callable
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.domain.limits import Limits
from idem.outbox.domain.rate_limit import DaemonPart, Pacer, Serving, part
from idem.outbox.values import clock

SEEN = 30.0
"""Seconds without a heartbeat (one is due every 5) after which a process is not counted any more."""

FLEET = """
SELECT count(*) FILTER (WHERE d.kind = 'worker')::integer, count(*) FILTER (WHERE d.kind = 'reconciler')::integer
  FROM idem.daemons d
 WHERE d.ended_at IS NULL AND d.seen_at > statement_timestamp() - make_interval(secs => %(seen)s)
"""


async def serving(connection: AsyncConnection[Any]) -> Serving:
    """The live workers and reconcilers of this database."""
    row = await (await connection.execute(FLEET, {"seen": SEEN})).fetchone()
    assert row is not None
    return Serving(*row)


class Census:
    """Counts the fleet for the lanes that divide a rate by it; without such a lane nothing is read."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Serving], None]] = []

    def subscribe(self, whom: Callable[[Serving], None]) -> None:
        """Call this after every count."""
        self._subscribers.append(whom)

    async def count(self, connection: AsyncConnection[Any]) -> None:
        """One count."""
        if not self._subscribers:
            return
        counted = await serving(connection)
        for whom in self._subscribers:
            whom(counted)


def paced(limits: Limits, who: DaemonPart, census: Census) -> Pacer:
    """The pacer of one lane of this process: by its part of the rate, which follows every count of the fleet."""
    pacer = Pacer(part(limits, who, Serving()))
    if limits.rate is not None and limits.processes is None:
        census.subscribe(lambda serving: pacer.set(part(limits, who, serving), clock.boottime()))
    return pacer
