"""One process that starts the daemons, restarts those that die, records deaths, and stops all in order."""

import os
from collections.abc import Callable, Collection

from idem.cli.group.children import Children, Death
from idem.cli.group.dead_daemons import DeadDaemons
from idem.cli.group.stopping import Stop
from idem.outbox.observe import daemon_events, metrics, telemetry

POLL = 0.5
"""Seconds between two checks of the processes; the exit of one wakes us at once."""
PROGRAM = "idem.cli.main"


class GroupSupervisor:
    """Runs a group until a stop is requested. `stop_timeout`: seconds that running calls may take to finish."""

    def __init__(self, children: Children, dead_daemons: DeadDaemons, stop: Stop, stop_timeout: float) -> None:
        self._children = children
        self._dead_daemons = dead_daemons
        self._stop = stop
        self._stop_timeout = stop_timeout
        children.died = self._died
        children.born = daemon_events.process_started

    def start(self, kind: str, *options: str, name: str | None = None) -> None:
        """Start `idem KIND run` with these options."""
        self._children.start(name or kind, PROGRAM, kind, "run", *options)

    @property
    def pids(self) -> dict[str, int]:
        """The running processes, by name."""
        return self._children.pids

    def start_workers(self, workers: int, *options: str) -> None:
        """Start this many workers."""
        for number in range(1, workers + 1):
            self.start("worker", *options, name=f"worker-{number}")

    def start_daemons(self, workers: int, *options: str) -> None:
        """Start this many workers, a sweeper and a reconciler."""
        self.start_workers(workers, *options)
        for kind in ("sweeper", "reconciler"):
            self.start(kind, *options)

    def run(self, each: Callable[[], None] = lambda: None, *, last: Collection[str] = ()) -> bool:
        """Keep them running until a signal arrives, then stop them; those named in `last` after all others.

        It calls `each` about twice a second, and once more before it stops them. Whether all have ended by themselves.
        """
        while not self._stop.asked:
            self._children.poll()
            _bury_strangers(self._children.pids.values())
            each()
            self._stop.wait(POLL)
        each()
        daemon_events.stopping(self._stop_timeout)
        deaths = [*self._children.stop(self._stop_timeout, but=last), *self._children.stop(self._stop_timeout)]
        for death in deaths:
            self._died(death)
        return not any(death.code for death in deaths)

    def _died(self, death: Death) -> None:
        daemon_events.process_ended(death.name, death.pid, death.how, death.again)
        self._dead_daemons.add(death)
        try:
            daemon_events.metrics_unreadable(metrics.forget(death.pid))
        except Exception as error:  # a full disk or a half-written file: metrics must not stop the daemons
            telemetry.broken("supervisor", error, f"metrics of {death.name}")


def _bury_strangers(ours: Collection[int]) -> None:
    # Process 1 of a container inherits all orphans and must reap them.
    if os.getpid() != 1:
        return
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in ours:
            return
        os.waitpid(dead.si_pid, os.WNOHANG)
