"""`idem up`: all of idem with its own database, to try it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idem.cli import db
from idem.cli.base import opening, start_checks, streams
from idem.cli.base.option_groups import LogOptions, grouped
from idem.cli.base.options import examples
from idem.cli.base.output import say
from idem.cli.group import up_note
from idem.cli.run import Host, Port, Workers
from idem.outbox.values.errors import ConfigError

if TYPE_CHECKING:
    from idem.cli.group.welcome import ApiAddress

EXAMPLES = examples("idem up", "idem up --port 8081 --home /tmp/idem-up", "IDEM_DATABASE_URL=postgresql://… idem up")


@grouped
def up(
    home: Annotated[Path, typer.Option(help="The folder for its data and files.")] = up_note.HOME,
    workers: Workers = 1,
    host: Host = None,
    port: Port = None,
    *,
    options: LogOptions,
) -> None:
    """Run the API, worker, sweeper and reconciler here on an embedded database, and print how to call the API.

    If IDEM_DATABASE_URL or the configuration names a database, it uses that one. Without an idem.toml it writes a
    sample with a fake bank. It upgrades the schema and creates a token for tenant `demo`. Ctrl-C stops everything.
    """
    start_checks.own_metrics()
    from idem.cli.group import folder, welcome
    from idem.cli.group.gathering import gathered, stop_timeout
    from idem.cli.group.sample import sample
    from idem.cli.group.stopping import group_stop
    from idem.cli.group.token import of_demo
    from idem.outbox.observe import telemetry

    with contextlib.ExitStack() as stack:
        stack.enter_context(streams.unblocked())
        stop = stack.enter_context(group_stop())
        stack.enter_context(folder.claimed(home))
        telemetry.set_up(json=options.log == "json", level=options.log_level)
        bank, chosen = None, _chosen(options.config)
        if chosen is None and not options.app:
            made = sample(home)
            bank, chosen = made.bank, made.config
            say(f"there is no idem.toml here: a sample with a bank {'was written to' if made.new else 'is'} {chosen}")
        if chosen is not None:
            chosen = chosen.absolute()
            os.environ["IDEM_CONFIG"] = str(chosen)
        found = opening.configuration(None)
        address = _address(*opening.listen_at(found.settings.api, host, port))
        database = ""
        if not (os.environ.get(opening.URL) or found.settings.database.url or found.settings.database.url_from):
            database = stack.enter_context(folder.embedded(home))
            os.environ[opening.URL] = database
            if not opening.environment(None)[1]:
                os.environ["IDEM_ENVIRONMENT"] = found.settings.environment
        database_at = opening.address(None)
        db.upgrade()
        token = asyncio.run(of_demo(database_at, home))

        environment, named = os.environ.get("IDEM_ENVIRONMENT", ""), None if chosen is None else str(chosen)
        running = up_note.RunningGroup(database, environment, named, options.app)
        stack.enter_context(up_note.noted(home, running))
        longest = stop_timeout(found)
        group = stack.enter_context(gathered(os.environ, database_at, stop, stop_timeout=longest, grace=0.0))
        if bank is not None:
            group.start("bank", "--settings", str(bank.absolute()))
        lines = ("--log", options.log, "--log-level", options.log_level)
        group.start_daemons(workers, *lines)
        group.start("api", *lines, "--host", address.host, "--port", str(address.port))
        words = welcome.text(address, token, sorted(found.operations), chosen, database, sample=bank is not None)
        announced = False

        def announce() -> None:
            nonlocal announced
            if not announced and address.answers():
                typer.echo(f"\n{words}\n")
                announced = True

        group.run(announce, last=("bank",))


def _chosen(config: Path | None) -> Path | None:
    """The user's own configuration; None if there is none and none was named."""
    from idem.outbox.config import source

    found = source.find(config, os.environ)
    return found if config is not None or os.environ.get(source.FILE_VARIABLE) or found.exists() else None


def _address(host: str, port: int) -> ApiAddress:
    """The address for the API, after a test. Raises ConfigError if it cannot listen there."""
    from idem.cli.group.welcome import ApiAddress
    from idem.outbox.http_server.serving import listen

    try:
        with listen(host, port) as free:
            return ApiAddress(host, free.getsockname()[1])
    except ConfigError as error:
        raise ConfigError(f"{'; '.join(error.problems)}, or use --port 0 for any free port") from None
