"""Runs one demo from its first process to its proof."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

import psycopg

from idem import Idem
from idem.cli.demo import client_log, database_record, flows, installation, report, scenario, workspace
from idem.cli.demo.client_log import ClientLog
from idem.cli.demo.clients import Clients
from idem.cli.demo.constants import Constants
from idem.cli.demo.display import Display
from idem.cli.demo.kills import Killer
from idem.cli.demo.monitor import Monitor
from idem.cli.demo.outage import Calm, take_away
from idem.cli.demo.processes import Processes
from idem.cli.demo.proof import prove
from idem.cli.demo.proof_records import ProofRules, Records
from idem.cli.demo.report import DemoResult
from idem.cli.demo.sabotage import Saboteur
from idem.cli.demo.scenario import KEYED, KEYLESS, operation
from idem.cli.demo.settings import DemoSettings
from idem.cli.group.children import Death
from idem.cli.group.dead_daemons import record
from idem.errors import ConfigError
from idem.migrations import runner
from idem.outbox.database import session
from idem.testing.bank import read_log
from idem.testing.embedded import Embedded

TIDY_UP = 60.0
"""Seconds beyond the longest path of one payment after which a demo ends, even if rows are open."""

START_UP = 6.0
"""Seconds without kills before an outage, because a daemon's CPU time and log lines at its start would count as noise
of the outage.
"""


def play(settings: DemoSettings, times: Constants) -> DemoResult:
    """Run the whole demo. No process of it is left afterwards."""
    work = workspace.folder(settings.home)
    with workspace.server(settings) as (url, embedded), workspace.database(url) as database:
        runner.upgrade(database, environment=installation.ENVIRONMENT)
        result = asyncio.run(_Stage(settings, times, work, database, embedded).play())
    (work / "proof.json").write_text(report.to_json(result) + "\n")
    return result


class _Stage:
    def __init__(
        self, settings: DemoSettings, times: Constants, work: Path, database: str, embedded: Embedded | None
    ) -> None:
        if settings.outage and embedded is None:
            raise ConfigError("--outage stops the embedded server. Leave out --database-url")
        self._settings = settings
        self._times = times
        self._work = work
        self._database = database
        self._embedded = embedded
        self._away = False
        self._calm: list[Calm] = []
        self._plan = scenario.plan(settings, times)

    async def play(self) -> DemoResult:
        began = time.monotonic()
        _end_as_ctrl_c_does(signal.SIGTERM, signal.SIGHUP)
        environment = self._environment()
        with Processes(environment, self._work, died=self._reaped) as processes:
            self._write_files(processes)
            processes.start_daemons(self._settings.workers)
            over, saboteur = await self._until_over(processes, environment)
            ahead = _clock_ahead(self._database)
            processes.end()
            records = self._records(ahead)
            return DemoResult(
                settings=self._settings,
                proof=prove(records),
                seconds=time.monotonic() - began,
                kills=len(processes.kills),
                ended_alone=processes.ended_alone.total(),
                over=over,
                folder=str(self._work),
                victim=saboteur.victim if saboteur is not None else None,
                calm=self._calm,
                rolled_back=len(self._plan) - scenario.wanted(self._plan),
            )

    async def _until_over(self, processes: Processes, environment: Mapping[str, str]) -> tuple[bool, Saboteur | None]:
        settings = self._settings
        idem = Idem(self._work / "idem.toml", env=environment)
        log = ClientLog(self._work / "clients.jsonl")
        operations = {operation(provider): idem.declared(operation(provider)) for provider in (KEYED, KEYLESS)}
        operations |= flows.define(idem) if settings.flows else {}
        clients = Clients(self._database, operations, log, self._plan, settings.seed)
        monitor = Monitor(self._database, clients, len(self._plan))
        display = Display(monitor.progress, clients, processes, scenario.wanted(self._plan))
        saboteur = None
        if settings.sabotage is not None:
            saboteur = Saboteur(settings.sabotage, self._database, self._work / "bank.jsonl", clients)
        killer = Killer(processes, self._database, settings, lambda: self._away or not monitor.progress.completed)
        async with _background(
            processes.tend(),
            clients.run(),
            display.run(),
            killer.run(),
            *([saboteur.run()] if saboteur is not None else []),
            *([self._outage(processes, monitor)] if settings.outage else []),
        ):
            try:
                over = await monitor.until_over(self._limit(), may_end=lambda: self._all_done(processes))
            finally:
                await monitor.close()
                idem.close()
        log.close()
        return over, saboteur

    def _all_done(self, processes: Processes) -> bool:
        """Whether all planned faults and kills have happened."""
        settings = self._settings
        return len(processes.kills) >= settings.kills and not self._away and bool(self._calm or not settings.outage)

    def _limit(self) -> float:
        # The longest path: the last payment is claimed by a worker that is killed, and again after its redrive.
        times = self._times
        one_way = times["worker.lease"] + times["flight_limit"] + times["pause_allowance"] + times["horizon"]
        return self._settings.arrival + 3 * one_way + TIDY_UP + self._settings.outage

    async def _outage(self, processes: Processes, monitor: Monitor) -> None:
        assert self._embedded is not None
        await asyncio.sleep(self._settings.arrival * 0.5)
        self._away = True
        try:
            await asyncio.sleep(START_UP)
            monitor.progress.notes.append(f"PostgreSQL is stopped for {self._settings.outage:g} s")
            self._calm = await take_away(self._embedded, processes, self._settings.outage)
            monitor.progress.notes.append("PostgreSQL is back")
        finally:
            self._away = False

    def _environment(self) -> dict[str, str]:
        # The demo's daemons must not see the user's own installation.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
        ours = {"IDEM_CONFIG": str(self._work / "idem.toml"), "IDEM_DATABASE_URL": self._database}
        return inherited | ours | dict(installation.TOKENS)

    def _write_files(self, processes: Processes) -> None:
        bank = installation.bank_settings(self._times, self._work / "bank.jsonl", self._settings.seed)
        settings = self._work / "bank.json"
        settings.write_text(bank.to_json())
        origin = processes.start_bank(str(settings))
        (self._work / "idem.toml").write_text(
            installation.idem_toml(self._times, origin, with_flows=self._settings.flows > 0)
        )

    def _reaped(self, death: Death) -> None:
        if self._away:
            return
        with contextlib.suppress(psycopg.Error), session.connect_sync(self._database, name="idem demo") as connection:
            record(connection, death)

    def _records(self, clock_ahead: float) -> Records:
        times = self._times
        return Records(
            clients=client_log.read(self._work / "clients.jsonl"),
            database=database_record.read(self._database),
            bank=read_log(self._work / "bank.jsonl"),
            rules=ProofRules(
                flight_limit=times["flight_limit"],
                pause_allowance=times["pause_allowance"],
                horizon=times["horizon"],
                agree=2,
                retention=times["retention"],
                margin=times.margin,
                keyless=frozenset({KEYLESS}),
                rejected=frozenset(payment.key for payment in self._plan if payment.rejected),
                partial=frozenset(payment.key for payment in self._plan if payment.partial),
                flows=flows.expected(),
                clock_ahead=clock_ahead,
            ),
        )


def _end_as_ctrl_c_does(*numbers: signal.Signals) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _clock_ahead(url: str) -> float:
    """How many seconds the database's clock is ahead of ours; 0 if less than the time to read it."""
    with session.connect_sync(url, name="idem demo") as connection:
        before = time.time()
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        after = time.time()
    assert row is not None
    ahead = float(row[0]) - (before + after) / 2
    return ahead if abs(ahead) > after - before else 0.0


@contextlib.asynccontextmanager
async def _background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these beside the body. If one fails, the demo ends; those still running are cancelled at the end."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except* Exception as failed:
        raise failed.exceptions[0] from None
