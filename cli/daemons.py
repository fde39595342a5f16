"""`idem worker|sweeper|reconciler run`: the daemons, one process each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from idem.cli import db
from idem.cli.base import opening, start_checks, streams
from idem.cli.base.application import App, application
from idem.cli.base.options import Config, Json, examples
from idem.cli.base.output import as_json, say, table

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.address import Address
    from idem.outbox.database.pool import Database, Timeouts
    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.worker.worker import Worker
    from idem.reconciler.daemon import Reconciler

worker = typer.Typer(
    no_args_is_help=True, help="Claim due rows and call providers.", epilog=examples("idem worker run")
)
sweeper = typer.Typer(
    no_args_is_help=True, help="End claims whose lease has expired.", epilog=examples("idem sweeper run")
)
reconciler = typer.Typer(
    no_args_is_help=True, help="Settle calls whose outcome is unknown.", epilog=examples("idem reconciler run")
)

LogOption: TypeAlias = Annotated[Literal["console", "json"], typer.Option("--log", help="Format of log lines.")]
LogLevel: TypeAlias = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option("--log-level", help="Lowest level to log.")
]
MetricsPort: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Serve Prometheus metrics on this port; default: none.")
]
MetricsHost: TypeAlias = Annotated[str, typer.Option(help="Address to serve metrics on.")]

WaitOption: TypeAlias = Annotated[
    float,
    typer.Option(min=0, help="How long to retry the database at start-up before giving up, in seconds."),
]
WAIT = 30.0

RunOption: TypeAlias = Callable[["Database", "Catalogue", "Configuration"], Awaitable[Any]]
Pool: TypeAlias = Callable[["Configuration"], tuple[int, "Timeouts"]]

SIZE: Final = 4
"""Most connections of a daemon, without those that listen."""


@worker.command("run", epilog=examples("idem worker run", "idem worker run --log json --metrics-port 9101"))
def run_worker(
    config: Config = None,
    app: App = None,
    log: LogOption = "console",
    log_level: LogLevel = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    wait: WaitOption = WAIT,
) -> None:
    """Claim due rows and call providers until SIGTERM; then finish the running calls and exit with code 0.

    With an application, also run its handlers of settled intents.
    """

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> None:
        from idem.outbox.daemon.daemon import stop_on_signals

        with stop_on_signals() as stop:
            await worker_of(config, database, catalogue, found).run(stop)

    run_daemon(config, "worker", run, log=log, level=log_level, port=metrics_port, host=metrics_host, wait=wait)


@sweeper.command("run", epilog=examples("idem sweeper run", "idem sweeper run --once --json"))
def run_sweeper(
    config: Config = None,
    app: App = None,
    once: Annotated[bool, typer.Option("--once", help="Run one pass and exit.")] = False,
    log: LogOption = "console",
    log_level: LogLevel = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    wait: WaitOption = WAIT,
    as_data: Json = False,
) -> None:
    """End claims whose lease has expired, hold rows that are too old, expire keys, until SIGTERM."""

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> Any:
        from idem.outbox.daemon.daemon import stop_on_signals
        from idem.sweeper.daemon import Sweeper

        daemon = Sweeper(database, catalogue, found.settings.sweeper)
        if once:
            return await daemon.run_once()
        with stop_on_signals() as stop:
            return await daemon.run(stop)

    done = run_daemon(
        config,
        "sweeper",
        run,
        log=log,
        level=log_level,
        port=metrics_port,
        host=metrics_host,
        wait=0.0 if once else wait,
    )
    if once:
        show_pass(done, as_data=as_data)


@reconciler.command("run", epilog=examples("idem reconciler run", "idem reconciler run --log json"))
def run_reconciler(
    config: Config = None,
    app: App = None,
    log: LogOption = "console",
    log_level: LogLevel = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    wait: WaitOption = WAIT,
) -> None:
    """Ask providers about unknown calls, apply proofs, redrive where that is safe, until SIGTERM."""

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> None:
        from idem.outbox.daemon.daemon import stop_on_signals

        with stop_on_signals() as stop:
            await reconciler_of(database, catalogue, found).run(stop)

    run_daemon(config, "reconciler", run, log=log, level=log_level, port=metrics_port, host=metrics_host, wait=wait)


@streams.unblocked()
def run_daemon(
    config: Path | None,
    name: str,
    run: RunOption,
    *,
    log: str,
    level: str,
    wait: float,
    port: int | None = None,
    host: str = "",
    pool: Pool | None = None,
) -> Any:
    """Run a daemon with this configuration. Any error at the start ends it with a message.

    It serves metrics on `port` and `host`. `pool` gives the number of connections and their timeouts, if they differ
    from a daemon's defaults. It waits up to `wait` seconds for a database that is down, because a restart during an
    outage is normal.
    """
    from idem.outbox.http_server import descriptors
    from idem.outbox.observe import telemetry

    found = opening.configuration(config)
    address = opening.address(config)
    descriptors.raise_limit()
    telemetry.set_up(json=log == "json", level=level)

    async def checks() -> None:
        await check_database(config, name)
        await check_environment(config, found)

    asyncio.run(start_checks.ready(address, name, wait, checks))
    beside = None
    if port is not None:
        from idem.outbox.http_server.side_server import Beside

        beside = Beside(host, port, name=name)
        say(f"metrics on http://{opening.in_url(host)}:{port}/metrics")

    async def started() -> Any:
        async with connected(found, address, name, pool) as database:
            return await run(database, opening.catalogue(found), found)

    try:
        return asyncio.run(started())
    finally:
        if beside is not None:
            beside.close()


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


async def check_database(config: Path | None, name: str) -> None:
    """Check the database. Raises ConfigError if idem cannot work on it, OperatorRefused for a wrong schema version.

    Logs a warning if the connection is not encrypted.
    """
    from idem.outbox.database import encryption
    from idem.outbox.observe import daemon_events

    async with opening.connected(config) as connection:
        if (reader := encryption.readable(connection)) is not None:
            daemon_events.not_encrypted(name, reader)
    await asyncio.to_thread(db.require_schema, config)


async def check_environment(config: Path | None, found: Configuration) -> None:
    """Print where this will write. Raises ConfigError if the database belongs to another environment."""
    async with opening.connected(config) as connection:
        await opening.announce(connection, found.settings.environment)


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
    slots = max(1, int(settings.worker.slots * settings.reconciler.lookup_share))
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
