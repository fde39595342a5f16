"""What a daemon without work sends and loads, in counts: one look for all passes, no module without a use."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from fix_database import connected
from fix_desk import Desk
from fix_serving import served
from fix_spine import Spine
from fix_waiting import running, until
from starlette.applications import Starlette

from idem.outbox.config.settings import ReconcilerSettings, SweeperSettings, WorkerSettings
from idem.outbox.database.bounded import BoundedConnection
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.http_server import serving
from idem.outbox.worker.idle_poll import IdlePoll
from idem.outbox.worker.worker import Worker
from idem.reconciler import daemon as reconciling
from idem.reconciler.daemon import Reconciler
from idem.sweeper import daemon as sweeping
from idem.sweeper.daemon import Sweeper

INTERVAL = 0.2
POLLS = 10
BESIDE = 5
"""Statements that may fall into as many polls: heartbeats, and passes that are rare."""


class Sent:
    """What the sessions of this process have sent between the second poll of a daemon and the last of `POLLS`.

    Everything counts: statements, BEGIN, and the question of a pool whether a session lives.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType | type, name: str) -> None:
        self.at_polls: list[int] = []
        self._now = 0
        wait, poll = BoundedConnection.wait, getattr(module, name)

        async def counted(connection: Any, work: Any, *arguments: Any, **named: Any) -> Any:
            # A pool commits what is handed back to it, which sends nothing where there is no transaction.
            self._now += work.__name__ != "_commit_gen"
            return await wait(connection, work, *arguments, **named)

        async def polled(*arguments: Any) -> Any:
            self.at_polls.append(self._now)
            return await poll(*arguments)

        monkeypatch.setattr(BoundedConnection, "wait", counted)
        monkeypatch.setattr(module, name, polled)

    @property
    def enough(self) -> bool:
        return len(self.at_polls) > POLLS + 1

    @property
    def number(self) -> int:
        return self.at_polls[POLLS + 1] - self.at_polls[1]


def sweeper(database: Database, known: Catalogue) -> Sweeper:
    return Sweeper(database, known, SweeperSettings(interval=INTERVAL))


def reconciler(database: Database, known: Catalogue) -> Reconciler:
    return Reconciler(database, known, ReconcilerSettings(interval=INTERVAL), slots=2, margin=1)


def worker(database: Database, known: Catalogue) -> Worker:
    return Worker(database, known, WorkerSettings(poll=INTERVAL, slots=2, margin=1))


@pytest.mark.parametrize(
    ("module", "name", "daemon"),
    [(IdlePoll, "_ask", worker), (sweeping, "due_passes", sweeper), (reconciling, "due_work", reconciler)],
)
async def test_an_idle_daemon_asks_once_for_all_its_passes(
    spine: Spine, monkeypatch: pytest.MonkeyPatch, module: ModuleType | type, name: str,
    daemon: Callable[[Database, Catalogue], Any],
) -> None:  # fmt: skip
    sent = Sent(monkeypatch, module, name)
    assert len(lane_scopes(spine.catalogue)) > 1
    async with connected(spine.url, size=2) as database, running(daemon(database, spine.catalogue)):
        await until(lambda: sent.enough)
    assert POLLS <= sent.number <= POLLS + BESIDE


@pytest.mark.wire
async def test_an_api_without_requests_wakes_up_for_the_date_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn looks ten times a second whether it is to end; here that is told."""
    ticks: list[int] = []
    tick = serving._Server.on_tick

    async def counted(server: serving._Server, counter: int) -> bool:
        ticks.append(counter)
        return await tick(server, counter)

    monkeypatch.setattr(serving._Server, "on_tick", counted)
    monkeypatch.setattr(serving, "DATE", 3600)
    async with served(Starlette()):
        await asyncio.sleep(0.5)
    assert len(ticks) == 1


MODULES = """
import json, sys
from idem.cli.main import main

code = main(["worker", "run"])
print(json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


@pytest.mark.process
@pytest.mark.quick
async def test_a_worker_loads_only_what_it_uses(desk: Desk) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MODULES, env=inherited | desk.environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        await until(lambda: desk.alive("worker"))
        worker.send_signal(signal.SIGTERM)
        out, _ = await worker.communicate()
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    assert worker.returncode == 0
    loaded = set(json.loads(out))
    assert "psycopg" in loaded
    assert loaded & {"sqlalchemy", "alembic", "rich", "pygments", "apscheduler", "starlette", "uvicorn"} == set()
