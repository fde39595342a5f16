"""Who is killed when: by the seed, while payments come in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from idem.cli.demo.processes import Processes
from idem.cli.demo.settings import DemoSettings

TOGETHER = 0.2
"""How often two are killed at the same moment."""
WEIGHTS = {"worker": 6.0, "reconciler": 3.0, "sweeper": 2.0}
"""By kind, however many of it run."""


class Killer:
    """Kills `settings.kills` daemons. `paused` holds it back (while the database is away)."""

    def __init__(self, processes: Processes, settings: DemoSettings, paused: Callable[[], bool]) -> None:
        self._processes = processes
        self._paused = paused
        self._chance = random.Random(f"idem kills {settings.seed}")
        span = settings.arrival
        self._moments = sorted(span * (0.12 + 0.85 * self._chance.random()) for _ in range(settings.kills))

    async def run(self) -> None:
        """Until all kills are made."""
        began = asyncio.get_running_loop().time()
        left = list(self._moments)
        while left:
            await asyncio.sleep(max(0.02, began + left[0] - asyncio.get_running_loop().time()))
            if self._paused():
                await asyncio.sleep(0.2)
                continue
            together = 2 if len(left) > 1 and self._chance.random() < TOGETHER else 1
            for _ in range(together):
                if self._kill_one():
                    left.pop(0)

    def _kill_one(self) -> bool:
        running = [process.name for process in self._processes.daemons if process.pid is not None]
        if not running:
            return False
        kinds = [name.partition("-")[0] for name in running]
        weights = [WEIGHTS[kind] / kinds.count(kind) for kind in kinds]
        return self._processes.kill(self._chance.choices(running, weights)[0])
