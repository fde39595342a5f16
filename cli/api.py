"""`idem api run`: the HTTP API, one process."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from idem.cli import daemons
from idem.cli.base import opening
from idem.cli.base.option_groups import ProcessOptions, grouped
from idem.cli.base.options import examples, group, port_option
from idem.cli.base.probes import probes

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.pool import Database
    from idem.outbox.domain.catalogue import Catalogue

app = group("Serve the HTTP API.", "idem api run --port 8080")


@app.command("run", epilog=examples("idem api run", "idem api run --host 0.0.0.0 --port 8080 --log json"))
@grouped
def run_api(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default api.host.")] = None,
    port: Annotated[int | None, port_option("Port to listen on, 0 for any free; default api.port.")] = None,
    metrics_port: Annotated[
        int | None,
        port_option(
            "Also serve /metrics, /healthz and /readyz on this port, in a separate thread.",
            least=1,
            show_default="none",
        ),
    ] = None,
    *,
    options: ProcessOptions,
) -> None:
    """Serve the HTTP API and the webhooks until SIGTERM; then answer the running requests and exit with code 0.

    The metrics port answers probes even while the clients' port is busy.
    """

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> None:
        at = opening.listen_at(found.settings.api, host, port)
        beside = None if metrics_port is None else (options.metrics_host, metrics_port)
        from idem.outbox.daemon.daemon import stop_event
        from idem.outbox.http_server.serving import listen

        with stop_event() as stop:
            async with probes(beside, "api", stop):
                await serve_until(database, catalogue, found, listen(*at), stop)

    daemons.run_daemon(options, "api", run, pool=lambda found: opening.pool(found, found.settings.api))


async def serve_until(
    database: Database,
    catalogue: Catalogue,
    found: Configuration,
    listening: socket.socket,
    stop: asyncio.Event,
    *,
    reserved: int = 0,
) -> None:
    """Serve the API on a listening socket until `stop`, then close the socket.

    `reserved`: file descriptors that the rest of this process will still open; the API adds its own.
    """
    from idem.outbox.api.app import Api
    from idem.outbox.daemon.daemon import Life
    from idem.outbox.database.notify import Nudge
    from idem.outbox.http_server.serving import serve_on
    from idem.reconciler.webhooks import endpoint

    settings = found.settings.api
    # A thread that reads a large body yields to the loop five times as often. The garbage collector, which stops all
    # threads, no longer scans what was loaded at the start.
    sys.setswitchinterval(0.001)
    gc.freeze()
    nudge = Nudge(database.address)
    events = endpoint.routes(database, catalogue, found.settings.webhooks)
    api = Api(database, catalogue, settings, nudge=nudge, more=events, reserved=reserved)
    life, done = Life("api"), asyncio.Event()

    async def drained() -> None:
        await stop.wait()
        api.drain()

    try:
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(api.run(done)),
                group.create_task(life.run(database, done)),
                group.create_task(drained()),
            ]
            try:
                await serve_on(
                    listening, api.app, stop, drain=settings.drain,
                    ready=opening.listening, reserved=settings.pool + 2 + reserved,
                )  # fmt: skip
            finally:
                done.set()
                running[-1].cancel()
    except* Exception as failed:
        raise failed.exceptions[0] from None
    finally:
        await life.end(database)
        nudge.close()
