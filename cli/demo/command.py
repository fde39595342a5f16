"""`idem demo` on the command line. `idem.cli.main` mounts it: `app.command("demo", epilog=command.EXAMPLES)(demo)`."""

from __future__ import annotations

from typing import Annotated

import typer

from idem.cli.demo import DemoSettings, Sabotage, run
from idem.cli.options import Json, examples

EXAMPLES = examples("idem demo", "idem demo --payments 200 --seed 7", "idem demo --sabotage blind-resend")


def demo(
    payments: Annotated[int, typer.Option(min=1, max=20_000, help="How many payments.")] = 500,
    faults: Annotated[float, typer.Option(min=0, max=0.9, help="Share of the bank's requests that go wrong.")] = 0.3,
    kills: Annotated[int, typer.Option(min=0, max=500, help="How many SIGKILLs of daemons.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Which faults and kills; default: any.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=16, help="How many workers.")] = 2,
    sabotage: Annotated[
        str | None,
        typer.Option(
            metavar="blind-resend|lose-row|rewrite-answer|believe-absent|skip-evidence",
            help="Break this rule on purpose: the proof must catch it, with exit code 1.",
        ),
    ] = None,
    outage: Annotated[
        float, typer.Option(min=0, max=600, help="Seconds for which PostgreSQL is stopped in the middle.")
    ] = 0.0,
    factor: Annotated[float, typer.Option(help="What the contract's times are multiplied by.")] = 0.05,
    as_data: Json = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the folder with the records; the demo's database is dropped either way."),
    ] = False,
    database_url: Annotated[
        str | None,
        typer.Option(help="A server on which this role may create a database; default: an embedded one."),
    ] = None,
) -> None:
    """Payments through a misbehaving bank, daemons killed with SIGKILL, and a proof at the end.

    Half the payments go to an account whose bank knows no idempotency keys. Exit code 0: every promise held; 1: one
    broke, and the output names the intent, which is what --sabotage must end with; 2: a setting that cannot work; 3: a
    sabotage found no victim; 4: the proof did not see a sabotage; 130: interrupted.
    """
    try:
        chosen = Sabotage(sabotage) if sabotage is not None else None
    except ValueError:
        raise typer.BadParameter(f"choose one of {', '.join(Sabotage)}", param_hint="--sabotage") from None
    raise typer.Exit(
        run(
            DemoSettings(
                payments=payments,
                faults=faults,
                kills=kills,
                seed=DemoSettings().seed if seed is None else seed,
                workers=workers,
                sabotage=chosen,
                outage=outage,
                factor=factor,
                json=as_data,
                keep=keep,
                database_url=database_url,
            )
        )
    )
