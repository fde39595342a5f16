"""`idem run`: all daemons under one supervisor, for production (`idem up` is for trying out)."""

import asyncio
import os
from typing import Annotated, TypeAlias

import typer

from idem.cli import daemons
from idem.cli.base import opening, start_checks, streams
from idem.cli.base.option_groups import ProcessOptions, grouped
from idem.cli.base.options import examples, port_option
from idem.cli.group import one_process

Host: TypeAlias = Annotated[
    str | None, typer.Option(help="Address for the API to listen on; default api.host.", show_default=False)
]
Port: TypeAlias = Annotated[
    int | None, port_option("Port for the API to listen on, 0 for any free; default api.port.", show_default=False)
]
Workers: TypeAlias = Annotated[int, typer.Option(min=1, max=64, help="How many worker processes.")]

EXAMPLES = examples(
    "idem run",
    "idem run --workers 4 --host 0.0.0.0 --log json",
    "idem run --no-api --app shop.payments:idem",
    "idem run --single-process",
)


@grouped
def run(
    workers: Workers = 1,
    host: Host = None,
    port: Port = None,
    api: Annotated[bool, typer.Option("--api/--no-api", help="Also serve the HTTP API and the webhooks.")] = True,
    single_process: Annotated[
        bool,
        typer.Option(
            "--single-process", help="Run everything in one process and one event loop, for small installations."
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        port_option(
            "Let the API process also serve /metrics of all processes, /healthz and /readyz on this port, in a "
            "separate thread.",
            least=1,
            show_default="none",
        ),
    ] = None,
    *,
    options: ProcessOptions,
) -> None:
    """Run the API with the webhooks, workers, sweeper and reconciler until SIGTERM; then exit with code 0.

    An application with its own endpoints needs no API: use `--app` and `--no-api`.

    Each is a process. The supervisor restarts a process that dies and records its death, so that idem settles its
    calls sooner. At the end it lets running calls finish.

    With `--single-process` all run in this process, with one worker and a quarter of the memory. Nothing is restarted
    then: if one fails, all terminate with exit code 1, and systemd or Kubernetes must restart this command.
    """
    if single_process and workers != 1:
        raise typer.BadParameter("--single-process has one worker. Leave out --workers or --single-process")
    start_checks.own_metrics()
    from idem.cli.group.gathering import gathered, stop_timeout
    from idem.cli.group.stopping import group_stop
    from idem.outbox.http_server.serving import listen
    from idem.outbox.observe import telemetry

    with streams.unblocked(), group_stop() as stop:
        config = options.config
        found, address = opening.configuration(config), opening.address(config)
        telemetry.set_up(json=options.log == "json", level=options.log_level)
        at = opening.listen_at(found.settings.api, host, port)
        beside = None if metrics_port is None else (options.metrics_host, metrics_port)
        for each in (at if api else None, beside):
            if each is not None:
                listen(*each).close()
        longest = stop_timeout(found)
        name = "run" if single_process else "supervisor"
        asyncio.run(daemons.check_start(found, address, name, options.wait))
        if single_process:
            raise typer.Exit(one_process.run(config, found, address, at if api else None, beside, longest))
        named = {} if config is None else {"IDEM_CONFIG": str(config.absolute())}
        environment = {**os.environ, **named}
        with gathered(environment, address, stop, stop_timeout=longest, grace=longest) as group:
            lines = ("--log", options.log, "--log-level", options.log_level, "--wait", f"{options.wait:g}")
            group.start_daemons(workers, *lines)
            if api:
                served = ("--metrics-host", beside[0], "--metrics-port", str(beside[1])) if beside is not None else ()
                group.start("api", *lines, "--host", at[0], "--port", str(at[1]), *served)
            group.run()
