"""`idem worker|sweeper|reconciler run`: the daemons, one process each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from idem.cli import db, opening, starting, streams
from idem.cli.application import App, application
from idem.cli.options import Config, Json, examples
from idem.cli.output import as_json, say, table

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.address import Address
    from idem.outbox.database.pool import Database, Timeouts
    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.worker.worker import Worker
    from idem.reconciler.daemon import Reconciler

worker = typer.Typer(
    no_args_is_help=True, help="Who claims rows and calls providers.", epilog=examples("idem worker run")
)
sweeper = typer.Typer(
    no_args_is_help=True, help="Who ends claims whose lease ran out.", epilog=examples("idem sweeper run")
)
reconciler = typer.Typer(
    no_args_is_help=True, help="Who settles what is unknown.", epilog=examples("idem reconciler run")
)

Log: TypeAlias = Annotated[Literal["console", "json"], typer.Option("--log", help="How log lines are written.")]
Level: TypeAlias = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option("--log-level", help="What is logged.")
]
MetricsPort: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Serve Prometheus metrics on this port; default: none.")
]
MetricsHost: TypeAlias = Annotated[str, typer.Option(help="The address that metrics are served on.")]

Wait: TypeAlias = Annotated[
    float,
    typer.Option(min=0, help="Seconds to wait at the start for a database that cannot be reached; then it ends."),
]
WAIT = 30.0

Run: TypeAlias = Callable[["Database", "Catalogue", "Configuration"], Awaitable[Any]]
Pool: TypeAlias = Callable[["Configuration"], tuple[int, "Timeouts"]]

SIZE: Final = 4
"""Connections of a daemon at the most, beside those that listen."""


@worker.command("run", epilog=examples("idem worker run", "idem worker run --log json --metrics-port 9101"))
def run_worker(
    config: Config = None,
    app: App = None,
    log: Log = "console",
    log_level: Level = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    wait: Wait = WAIT,
) -> None:
    """Claim due rows and make the calls, until SIGTERM: running calls are finished, then the exit code is 0.

    With an application it runs its handlers of settled intents too.
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
    once: Annotated[bool, typer.Option("--once", help="One pass, then end.")] = False,
    log: Log = "console",
    log_level: Level = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    wait: Wait = WAIT,
    as_data: Json = False,
) -> None:
    """End claims whose lease ran out, hold what is too old, expire keys, until SIGTERM."""

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
    log: Log = "console",
    log_level: Level = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    wait: Wait = WAIT,
) -> None:
    """Ask providers about what is unknown, apply proofs, redrive what may be, until SIGTERM."""

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> None:
        from idem.outbox.daemon.daemon import stop_on_signals

        with stop_on_signals() as stop:
            await reconciler_of(database, catalogue, found).run(stop)

    run_daemon(config, "reconciler", run, log=log, level=log_level, port=metrics_port, host=metrics_host, wait=wait)


@streams.unblocked()
def run_daemon(
    config: Path | None,
    name: str,
    run: Run,
    *,
    log: str,
    level: str,
    wait: float,
    port: int | None = None,
    host: str = "",
    pool: Pool | None = None,
) -> Any:
    """Run a daemon on this configuration; everything that is wrong at the start ends it with a message.

    `port` and `host` are where metrics are served; `pool` gives the number of connections and their timeouts, where
    they are not those of every daemon. It waits up to `wait` seconds for a database that is down: a restart in the
    middle of an outage is no mistake.
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

    asyncio.run(starting.ready(address, name, wait, checks))
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
    """The connections of the daemon of this name; `pool` gives their number and timeouts, if they are its own."""
    from idem.outbox.database.pool import Database

    size, timeouts = pool(found) if pool is not None else (SIZE, opening.timeouts(found))
    database = Database(address, name=f"idem {name}", size=size, timeouts=timeouts, on_connect=opening.guard(found))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def check_database(config: Path | None, name: str) -> None:
    """Raises ConfigError where nothing of idem could work on this database, OperatorRefused for another schema.

    A line that others may read is a warning in the log.
    """
    from idem.outbox.database import encryption
    from idem.outbox.observe import daemon_events

    async with opening.connected(config) as connection:
        if (reader := encryption.readable(connection)) is not None:
            daemon_events.not_encrypted(name, reader)
    await asyncio.to_thread(db.require_schema, config)


async def check_environment(config: Path | None, found: Configuration) -> None:
    """Say where this will write. Raises ConfigError where the database belongs to another environment."""
    async with opening.connected(config) as connection:
        await opening.announce(connection, found.settings.environment)


def worker_of(config: Path | None, database: Database, catalogue: Catalogue, found: Configuration) -> Worker:
    """A worker with the settings of this configuration and the handlers of its application."""
    from idem.outbox.worker.worker import Worker

    served, handlers = application(config), None
    if served is not None and served.handlers:
        # With it comes SQLAlchemy, which no other part of a worker needs.
        from idem.outbox.handlers import HandlerRunner

        handlers = HandlerRunner(database.address, served.handlers)
    return Worker(database, catalogue, found.settings.worker, handlers)


def reconciler_of(database: Database, catalogue: Catalogue, found: Configuration) -> Reconciler:
    """A reconciler with the slots and waits of this configuration."""
    from idem.reconciler.daemon import Reconciler

    settings = found.settings
    slots = max(1, int(settings.worker.slots * settings.reconciler.share))
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
    table(["what", "how", "count"], rows, empty="there was nothing to do")
