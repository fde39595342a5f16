"""`idem demo` on the command line. `idem.cli.main` mounts it: `app.command("demo", epilog=command.EXAMPLES)(demo)`."""

from typing import Annotated

import typer

from idem.cli.base.options import Json, examples
from idem.cli.demo import DemoSettings, Sabotage, run

EXAMPLES = examples("idem demo", "idem demo --payments 200 --seed 7", "idem demo --sabotage blind-resend")


def demo(
    payments: Annotated[int, typer.Option(min=1, max=20_000, help="Number of payments.")] = 500,
    flows: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the payments that are operations of several calls.")
    ] = 0.3,
    faults: Annotated[float, typer.Option(min=0, max=0.9, help="Share of the bank's requests that fail.")] = 0.3,
    kills: Annotated[int, typer.Option(min=0, max=500, help="Number of SIGKILLs to daemons.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Seed of the faults and kills; default: random.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=16, help="Number of workers.")] = 2,
    sabotage: Annotated[
        str | None,
        typer.Option(
            metavar="blind-resend|lose-row|rewrite-answer|believe-absent|skip-evidence|repeat-step|share-key|skip-undo",
            help="Break this rule on purpose; the proof must catch it, with exit code 1.",
        ),
    ] = None,
    outage: Annotated[
        float, typer.Option(min=0, max=600, help="Stop PostgreSQL in the middle for this many seconds.")
    ] = 0.0,
    factor: Annotated[float, typer.Option(help="Factor for the times of the contract.")] = 0.05,
    as_data: Json = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder with the records; the demo's database is always dropped.")
    ] = False,
    database_url: Annotated[
        str | None, typer.Option(help="A server on which the role may create a database; default: an embedded server.")
    ] = None,
) -> None:
    """Send payments to a faulty fake bank, kill daemons with SIGKILL, and check every promise at the end.

    Half the payments go to an account without idempotency keys. A flow reserves, charges and sends a receipt; what it
    has done is undone if the bank refuses a later step. Exit code 0: every promise held; 1: one broke, and the
    output names the intent (--sabotage must end so); 2: a setting cannot work; 3: a sabotage found no victim; 4: the
    proof missed a sabotage; 130: interrupted.
    """
    try:
        chosen = Sabotage(sabotage) if sabotage is not None else None
    except ValueError:
        raise typer.BadParameter(f"choose one of {', '.join(Sabotage)}", param_hint="--sabotage") from None
    raise typer.Exit(
        run(
            DemoSettings(
                payments=payments,
                flows=flows,
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
