"""`idem worker run --processes N`: workers under one supervisor, which serves the metrics of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from idem.cli import daemons
from idem.cli.base import opening, streams
from idem.cli.base.failures import FAILED, OK
from idem.cli.base.output import say
from idem.cli.group.gathering import SPARE, gathered
from idem.cli.group.stopping import group_stop
from idem.outbox.http_server.side_server import Health, SideServer
from idem.outbox.observe import telemetry

if TYPE_CHECKING:
    from idem.cli.base.option_groups import DaemonOptions


class GroupHealth(Health):
    """Alive while the supervisor looks after its processes; ready while all of them run and nobody has stopped it."""

    def see(self, running: int, wanted: int, *, stopping: bool) -> None:
        """What the supervisor has seen just now, in processes."""
        self.beat()
        self.draining = stopping or running < wanted


def run(options: DaemonOptions, processes: int) -> int:
    """Run so many workers until SIGTERM, and restart those that die; returns the exit code.

    It is 0 if every worker has ended by itself in the time that its running calls may take, else 1.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(streams.unblocked())
        stop = stack.enter_context(group_stop())
        found, address = opening.configuration(options.config), opening.address(options.config)
        telemetry.set_up(json=options.log == "json", level=options.log_level)
        asyncio.run(daemons.check_start(found, address, "supervisor", options.wait))
        named = {} if options.config is None else {"IDEM_CONFIG": str(options.config.absolute())}
        longest = found.settings.worker.lease + SPARE
        group = stack.enter_context(
            gathered({**os.environ, **named}, address, stop, stop_timeout=longest, grace=longest)
        )
        health = GroupHealth()
        # Until all of them have been seen.
        health.draining = True
        if options.metrics_port is not None:
            beside = SideServer(options.metrics_host, options.metrics_port, health, name="worker")
            stack.callback(beside.close)
            say(f"metrics and probes on http://{opening.in_url(beside.host)}:{beside.port}/metrics")
        lines = ("--log", options.log, "--log-level", options.log_level, "--wait", f"{options.wait:g}")
        group.start_workers(processes, *lines)
        ended = group.run(lambda: health.see(len(group.pids), processes, stopping=stop.asked))
        return OK if ended else FAILED
