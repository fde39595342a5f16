"""`idem webhooks run`: receive providers' events, in one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from idem.cli import daemons
from idem.cli.base import opening
from idem.cli.base.option_groups import DaemonOptions, grouped
from idem.cli.base.options import examples, group, port_option
from idem.cli.base.output import say
from idem.outbox.values.plural import several

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.pool import Database
    from idem.outbox.domain.catalogue import Catalogue

app = group("Receive providers' events.", "idem webhooks run --port 8081")


@app.command("run", epilog=examples("idem webhooks run", "idem webhooks run --host 0.0.0.0 --log json"))
@grouped
def run_webhooks(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default webhooks.host.", show_default=False)
    ] = None,
    port: Annotated[
        int | None, port_option("Port to listen on, 0 for any free; default webhooks.port.", show_default=False)
    ] = None,
    *,
    options: DaemonOptions,
) -> None:
    """Receive signed events at /webhooks/PROVIDER until SIGTERM; then finish the running requests and exit with code 0.

    `idem api run` receives them too; this command is for a separate process, e.g. in another network zone.
    """

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> None:
        say_addresses(catalogue)
        await _serve(database, catalogue, found, *opening.listen_at(found.settings.webhooks, host, port))

    pool = lambda found: opening.pool(found, found.settings.webhooks)  # noqa: E731
    daemons.run_daemon(options, "webhooks", run, port=options.metrics_port, pool=pool)


def say_addresses(catalogue: Catalogue) -> None:
    """Print which accounts' events idem receives, and whose it refuses because it cannot verify them."""
    for name, provider in sorted(catalogue.providers.items()):
        if provider.webhook is None:
            continue
        secrets = provider.webhook.secrets
        for account in sorted(provider.accounts):
            if secrets.get(account):
                active = several(len(secrets[account]), "secret")
                say(f"events of {name}/{account}: /webhooks/{name}/{account}, {active}")
            else:
                say(f"events of {name}/{account}: refused, because no signing secret is configured for this account")


async def _serve(database: Database, catalogue: Catalogue, found: Configuration, host: str, port: int) -> None:
    from idem.outbox.daemon.daemon import Life, stop_event
    from idem.outbox.http_server.serving import serve
    from idem.reconciler.webhooks import endpoint

    life, ended = Life("webhooks"), asyncio.Event()
    app = endpoint.application(database, catalogue, found.settings.webhooks)
    living = asyncio.create_task(life.run(database, ended))
    try:
        with stop_event() as stop:
            await serve(
                app, host, port, stop, ready=opening.listening, name="webhooks", reserved=found.settings.webhooks.pool
            )
    finally:
        ended.set()
        await living
        await life.end(database)
