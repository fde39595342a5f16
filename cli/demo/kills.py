"""Kills daemons while payments come in, at times from the seed. Most kills hit a daemon in the middle of a call."""

import asyncio
import contextlib
import random
from collections.abc import Callable

import psycopg

from idem.cli.demo.processes import Processes
from idem.cli.demo.settings import DemoSettings
from idem.outbox.database import session

TOGETHER = 0.2
"""The probability that two daemons die at the same moment."""
WEIGHTS = {"worker": 6.0, "reconciler": 3.0, "sweeper": 1.0}
"""Weights by kind, regardless of how many run."""
AIMED = 0.75
"""The share of kills that wait for a daemon with a claim; the others hit any daemon."""
PATIENCE = 1.5
"""Seconds to wait for such a daemon."""
POLL = 0.01
PAUSE = 0.2
FIRST = 0.5
"""Seconds from the moment at which all daemons run until the first kill."""

HOLDING = """
SELECT d.pid FROM idem.outbox o JOIN idem.daemons d ON d.id = o.claimed_by
 WHERE d.kind = %s AND d.ended_at IS NULL AND o.claimed_until > statement_timestamp()
"""


UP = """
SELECT count(DISTINCT d.pid) FROM idem.daemons d WHERE d.ended_at IS NULL AND d.pid = ANY (%s)
"""


class Killer:
    """Kills `settings.kills` daemons, once all of them run. `paused` delays it until the first payment is done, and
    while the database is unavailable.
    """

    def __init__(self, processes: Processes, url: str, settings: DemoSettings, paused: Callable[[], bool]) -> None:
        self._processes = processes
        self._url = url
        self._paused = paused
        self._chance = random.Random(f"idem kills {settings.seed}")
        first, last = FIRST, max(FIRST + 1, settings.arrival)
        self._moments = sorted(self._chance.uniform(first, last) for _ in range(settings.kills))

    async def run(self) -> None:
        """Run until all kills are done."""
        while self._paused() or not await self._all_up():  # noqa: ASYNC110 (there is no event for it)
            await asyncio.sleep(PAUSE)
        began = asyncio.get_running_loop().time()
        left = list(self._moments)
        while left:
            await asyncio.sleep(max(0.02, began + left[0] - asyncio.get_running_loop().time()))
            if self._paused():
                # Shift the rest of the plan, or all missed kills would come at once.
                await asyncio.sleep(PAUSE)
                began += PAUSE
                continue
            together = 2 if len(left) > 1 and self._chance.random() < TOGETHER else 1
            for _ in range(together):
                if await self._kill_one():
                    left.pop(0)

    async def _all_up(self) -> bool:
        """Whether every daemon has given a heartbeat: killing one during its start would test nothing."""
        pids = [process.pid for process in self._processes.daemons if process.pid is not None]
        with contextlib.suppress(psycopg.Error):
            async with await session.connect(self._url, name="idem demo") as connection:
                row = await (await connection.execute(UP, (pids,))).fetchone()
                return row is not None and row[0] >= len(self._processes.daemons)
        return False

    async def _kill_one(self) -> bool:
        kind = self._chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        at_work = None
        if self._chance.random() < AIMED and kind != "sweeper":
            at_work = await self._holding(kind)
        running = {p.pid: p.name for p in self._processes.daemons if p.pid is not None and p.name.startswith(kind)}
        if not running:
            return False
        name = (running.get(at_work) if at_work is not None else None) or self._chance.choice(sorted(running.values()))
        return self._processes.kill(name)

    async def _holding(self, kind: str) -> int | None:
        """The pid of a daemon of this kind in the middle of a call; None if none makes one within `PATIENCE`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        with contextlib.suppress(psycopg.Error):
            async with await session.connect(self._url, name="idem demo") as connection:
                while loop.time() < until and not self._paused():
                    rows = await (await connection.execute(HOLDING, (kind,))).fetchall()
                    if rows:
                        return int(self._chance.choice(rows)[0])
                    await asyncio.sleep(POLL)
        return None
