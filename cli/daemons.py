"""`idem worker|sweeper|reconciler run`: the daemons, one process each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from idem.cli import db
from idem.cli.base import loading, opening, start_checks, streams
from idem.cli.base.application import application
from idem.cli.base.option_groups import DaemonOptions, ProcessOptions, grouped
from idem.cli.base.options import Json, examples, group
from idem.cli.base.output import as_json, table
from idem.cli.base.probes import probes

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from idem.outbox.config import Configuration
    from idem.outbox.database.address import Address
    from idem.outbox.database.bounded import BoundedConnection
    from idem.outbox.database.pool import Database, Timeouts
    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.worker.worker import Worker
    from idem.reconciler.daemon import Reconciler
    from idem.sweeper.daemon import Sweeper

worker = group("Claim due rows and call providers.", "idem worker run")
sweeper = group("End claims whose lease has expired.", "idem sweeper run")
reconciler = group("Settle calls whose outcome is unknown.", "idem reconciler run")

RunOption: TypeAlias = Callable[["Database", "Catalogue", "Configuration"], Awaitable[Any]]
Pool: TypeAlias = Callable[["Configuration"], tuple[int, "Timeouts"]]

MODULES: Final = {
    "worker": "idem.outbox.worker.worker",
    "sweeper": "idem.sweeper.daemon",
    "reconciler": "idem.reconciler.daemon",
    "api": "idem.outbox.api.app",
}
"""What a daemon of this name is made of; loaded before it opens a connection."""

SIZE: Final = 4
"""Most connections of a daemon, without those that listen."""


@worker.command(
    "run", epilog=examples("idem worker run", "idem worker run --processes 4 --log json --metrics-port 9101")
)
@grouped
def run_worker(
    processes: Annotated[
        int, typer.Option(min=1, max=64, help="How many worker processes, under one supervisor if more than 1.")
    ] = 1,
    *,
    options: DaemonOptions,
) -> None:
    """Claim due rows and call providers until SIGTERM; then finish the running calls and exit with code 0.

    With an application, also run its local steps, and its handlers of settled intents and of steps.

    One process uses one core. With `--processes` a supervisor restarts a worker that dies and records its death, and
    serves the metrics of all on one port, with `/healthz` and `/readyz`. Slots and breakers are per process.
    """
    if processes > 1:
        # Before the metrics are imported.
        start_checks.own_metrics()
        from idem.cli.group import worker_group

        raise typer.Exit(worker_group.run(options, processes))

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> None:
        await _until_signal(worker_of(options.config, database, catalogue, found))

    run_daemon(options, "worker", run, port=options.metrics_port)


@sweeper.command("run", epilog=examples("idem sweeper run", "idem sweeper run --once --json"))
@grouped
def run_sweeper(
    once: Annotated[bool, typer.Option("--once", help="Run one pass and exit.")] = False,
    as_data: Json = False,
    *,
    options: DaemonOptions,
) -> None:
    """End claims whose lease has expired, hold rows that are too old, expire keys, until SIGTERM."""

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> Any:
        from idem.sweeper.daemon import Sweeper

        daemon = Sweeper(database, catalogue, found.settings.sweeper)
        return await (daemon.run_once() if once else _until_signal(daemon))

    options = replace(options, wait=0.0) if once else options
    done = run_daemon(options, "sweeper", run, port=options.metrics_port)
    if once:
        show_pass(done, as_data=as_data)


@reconciler.command("run", epilog=examples("idem reconciler run", "idem reconciler run --log json"))
@grouped
def run_reconciler(options: DaemonOptions) -> None:
    """Ask providers about unknown calls, apply proofs, redrive where that is safe, until SIGTERM."""

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> None:
        await _until_signal(reconciler_of(database, catalogue, found))

    run_daemon(options, "reconciler", run, port=options.metrics_port)


async def _until_signal(daemon: Worker | Sweeper | Reconciler) -> None:
    from idem.outbox.daemon.daemon import stop_event

    with stop_event() as stop:
        await daemon.run(stop)


@streams.unblocked()
def run_daemon(
    options: ProcessOptions, name: str, run: RunOption, *, port: int | None = None, pool: Pool | None = None
) -> Any:
    """Run a daemon with this configuration. Any error at the start ends it with a message.

    It serves metrics and probes on `port`. `pool` gives the number of connections and their timeouts, if they are not
    a daemon's defaults. It waits up to `options.wait` seconds for a database that is down, because a restart during an
    outage is normal.
    """
    with loading.loading():
        if name != "sweeper":  # the sweeper makes no HTTP call
            loading.without_rich("httpx")
        from idem.outbox.http_server import descriptors
        from idem.outbox.observe import telemetry

        found, address = opening.configuration(options.config), opening.address(options.config)
        if name in MODULES:
            import_module(MODULES[name])
    descriptors.raise_limit()
    telemetry.set_up(json=options.log == "json", level=options.log_level)

    asyncio.run(check_start(found, address, name, options.wait))

    beside = None if port is None else (options.metrics_host, port)

    async def started() -> Any:
        async with probes(beside, name), connected(found, address, name, pool) as database:
            return await run(database, opening.catalogue(found), found)

    return asyncio.run(started())


@contextlib.asynccontextmanager
async def connected(
    found: Configuration, address: Address, name: str, pool: Pool | None = None
) -> AsyncIterator[Database]:
    """The connection pool of the daemon of this name; `pool` gives its size and timeouts, if they are not the
    defaults.
    """
    from idem.outbox.database.pool import Database

    size, timeouts = pool(found) if pool is not None else (SIZE, opening.timeouts(found))
    database = Database(address, name=f"idem {name}", size=size, timeouts=timeouts, on_connect=opening.guard(found))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def check_start(found: Configuration, address: Address, name: str, wait: float) -> None:
    """Make the start checks of a daemon until they pass, for at most `wait` seconds, and print where it will write.

    Raises ConfigError if idem cannot work on the database, or if it belongs to another environment, OperatorRefused for
    a wrong schema version. Logs a warning if the connection is not encrypted.
    """
    from idem.outbox.database import encryption, session
    from idem.outbox.observe import daemon_events

    async def checks(connection: BoundedConnection) -> None:
        await session.make_ours(connection, address, f"idem {name}", opening.timeouts(found))
        await opening.unhindered(connection)
        if (reader := encryption.readable(connection)) is not None:
            daemon_events.not_encrypted(name, reader)
        await require_schema(connection)
        await opening.announce(connection, found.settings.environment)

    await start_checks.ready(address, name, wait, checks)


VERSIONED = "SELECT to_regclass('idem.alembic_version') IS NOT NULL"
REVISION = "SELECT v.version_num::text FROM idem.alembic_version v"


async def require_schema(connection: AsyncConnection[Any]) -> None:
    """Raises OperatorRefused unless the schema has the revision that this program needs."""
    from idem.migrations.revision import HEAD
    from idem.outbox.database.pool import is_true

    revision = None
    if await is_true(connection, VERSIONED, {}):
        row = await (await connection.execute(REVISION)).fetchone()
        revision = None if row is None else row[0]
    if revision != HEAD:
        raise db.other_revision(revision, HEAD)


def worker_of(config: Path | None, database: Database, catalogue: Catalogue, found: Configuration) -> Worker:
    """A worker with this configuration's settings and its application's handlers."""
    from idem.outbox.worker.worker import Worker

    served, handlers = application(config), None
    if served is not None and served.handlers:
        # This imports SQLAlchemy, which no other part of a worker needs.
        from idem.outbox.handlers.runner import HandlerRunner

        handlers = HandlerRunner(database.address, served.handlers)
    return Worker(database, catalogue, found.settings.worker, handlers)


def reconciler_of(database: Database, catalogue: Catalogue, found: Configuration) -> Reconciler:
    """A reconciler with this configuration's slots and waits."""
    from idem.reconciler.daemon import Reconciler

    settings = found.settings
    slots = max(1, int(settings.worker.slots * settings.reconciler.slot_share))
    return Reconciler(database, catalogue, settings.reconciler, slots=slots, margin=settings.worker.margin)


def show_pass(done: Any, *, as_data: bool) -> None:
    """Print what one pass of a daemon did."""
    result: dict[str, Any] = done if isinstance(done, dict) else asdict(done)
    if as_data:
        as_json(result)
        return
    rows: list[list[object]] = []
    for name, value in result.items():
        if isinstance(value, dict):
            rows += [[name, what, count] for what, count in sorted(value.items())]
        elif value:
            rows.append([name, "", value])
    table(["what", "how", "count"], rows, empty="nothing to do")
