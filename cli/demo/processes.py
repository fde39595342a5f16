"""The daemons of a demo as real processes: starts, kills and restarts them, and stops all at the end."""

import asyncio
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from idem.cli.group.children import Child, Children

POLL = 0.05
"""Seconds between two checks of the processes."""
STOP = 6.0
"""Seconds that a daemon has to finish its calls at the end."""

BANK = "bank"
BANK_UP = 20.0


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL."""

    name: str
    pid: int


@dataclass
class Processes(Children):
    """All processes of a demo, and the kills made on purpose."""

    kills: list[Kill] = field(default_factory=list)
    ended_alone: Counter[str] = field(default_factory=Counter)

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def daemons(self) -> list[Child]:
        """All but the bank, which plays another company's system."""
        return [child for child in self._all.values() if child.name != BANK]

    def start_bank(self, settings: str) -> str:
        """Start the bank and return its URL. Raises RuntimeError if it prints none."""
        bank = self.start(BANK, "idem.testing.bank", settings)
        assert bank.log is not None
        until = time.monotonic() + BANK_UP
        while time.monotonic() < until and bank.pid is not None:
            for line in bank.log.read_text().splitlines():
                if line.startswith("http://"):
                    return line
            time.sleep(POLL)
        raise RuntimeError(f"the bank does not start. Its output: {bank.log.read_text()[-500:]}")

    def start_daemons(self, workers: int) -> None:
        """Start `workers` workers, a sweeper and a reconciler."""
        for name in (*(f"worker-{n}" for n in range(1, workers + 1)), "sweeper", "reconciler"):
            self.start(name, "idem.cli.main", name.partition("-")[0], "run", "--log", "json")

    async def tend(self) -> None:
        """Restart dead processes until cancelled."""
        while True:
            self.poll()
            await asyncio.sleep(POLL)

    def kill(self, name: str) -> bool:
        """SIGKILL the process of this name; False if it is not running."""
        child = self._all[name]
        pid = child.pid
        if pid is None:
            return False
        child.killed = True
        os.kill(pid, signal.SIGKILL)
        self.kills.append(Kill(name, pid))
        return True

    def end(self) -> None:
        """End all processes: daemons first, with time to finish their calls, then the bank."""
        self.stop(STOP, but={BANK})
        self.stop(STOP)

    def _died(self, child: Child, pid: int, code: int, now: float) -> None:
        if not child.killed:
            self.ended_alone[child.name] += 1
        super()._died(child, pid, code, now)
