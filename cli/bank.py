"""`idem bank run`: a fake payment provider that fails on request."""

from pathlib import Path
from typing import Annotated

import typer

from idem.cli.base import streams
from idem.cli.base.options import examples, group, port_option

app = group("A fake payment provider that fails on request, for experiments.", "idem bank run --port 8600")


@app.command(
    epilog=examples(
        "idem bank run --port 8600 --fault-rate 0.2",
        "idem bank run --account shop:sk_test_1:stored:24h::stripe",
        "idem bank run --settings bank.json",
    )
)
def run(
    settings: Annotated[
        Path | None, typer.Option(help="A JSON file with the bank's settings; the options below override it.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, port_option("The port; default 0: any free port.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="The file to log every request and effect to; default: in memory only.")
    ] = None,
    account: Annotated[
        list[str] | None,
        typer.Option(help="An account: name:token[:replay[:retention[:lag[:api]]]]; api is own or stripe. Repeatable."),
    ] = None,
    fault_rate: Annotated[float | None, typer.Option(min=0, max=1, help="Share of payments that fail, 0 to 1.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random faults: the same seed gives the same faults.")
    ] = None,
) -> None:
    """Run the bank until SIGTERM. The first line of the output is its URL.

    `POST /_bank/script` with {"faults": ["act_then_drop"]} sets the faults of the next payments. Faults:
    act_then_drop, act_then_reset, act_then_stall, act_then_500, drop_before_acting, reset_before_acting,
    stall_before_acting, 429, 503, 500_before_acting, 500_cached, 500_rolled_forward, 409_in_flight, 429_lock_timeout,
    drip, broken_body, cut_body, decline, pending, pending_then_declined, html_403, 401, 422_before_acting,
    requires_action, requires_action_then_declined. `name:seconds` sets the duration of a fault. The bank keeps its
    state in memory only and forgets it at a restart.
    """
    from dataclasses import replace

    from idem.testing import bank

    try:
        accounts = tuple(bank.BankAccount.parse(text) for text in account) if account else None
    except bank.SettingsError as error:
        raise typer.BadParameter(str(error), param_hint="--account") from None
    try:
        base = bank.BankSettings.from_json(settings.read_bytes()) if settings else bank.BankSettings()
    except OSError as error:
        said = f"{settings}: it cannot be read: {error.strerror}. Name a JSON file, or leave --settings out"
        raise typer.BadParameter(said, param_hint="--settings") from None
    except bank.SettingsError as error:
        raise typer.BadParameter(f"{settings}: {error}", param_hint="--settings") from None
    given = {"host": host, "port": port, "log": log, "accounts": accounts, "fault_rate": fault_rate, "seed": seed}
    try:
        chosen = replace(base, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    except bank.SettingsError as error:
        raise typer.BadParameter(str(error)) from None
    with streams.unblocked():
        bank.run(chosen, lambda url: typer.echo(url))
