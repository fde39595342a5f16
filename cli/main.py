"""The command `idem`: one file per command; each command imports its heavy modules itself."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated

import typer

from idem.cli import (
    api,
    bank,
    config,
    daemons,
    db,
    dlq,
    find,
    importing,
    intents,
    pause,
    reconcile,
    recover,
    run,
    status,
    tenants,
    tokens,
    unknowns,
    up,
    webhooks,
)
from idem.cli.base import streams
from idem.cli.base.failures import EXIT_CODES, FAILED, USAGE, explain
from idem.cli.base.help import Grouped
from idem.cli.base.options import examples
from idem.cli.base.output import say
from idem.cli.bench import command as bench
from idem.cli.demo import command as demo
from idem.cli.doctor import command as doctor

app = typer.Typer(
    name="idem",
    cls=Grouped,
    no_args_is_help=True,
    # Plain help imports nothing, and is the same in a terminal, a file and the docs.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=examples("idem db upgrade", "idem worker run", "idem status", "idem dlq list") + "\n\n" + EXIT_CODES,
)
app.add_typer(db.app, name="db")
app.add_typer(api.app, name="api")
app.add_typer(webhooks.app, name="webhooks")
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("up", epilog=up.EXAMPLES)(up.up)
app.add_typer(daemons.worker, name="worker")
app.add_typer(daemons.sweeper, name="sweeper")
app.add_typer(daemons.reconciler, name="reconciler")
app.command("reconcile", epilog=reconcile.EXAMPLES)(reconcile.reconcile)
app.add_typer(unknowns.app, name="unknowns")
app.add_typer(dlq.app, name="dlq")
app.add_typer(intents.app, name="intents")
app.add_typer(tokens.app, name="token")
app.add_typer(tenants.app, name="tenants")
app.command("pause", epilog=pause.PAUSE_EXAMPLES)(pause.pause)
app.command("resume", epilog=pause.RESUME_EXAMPLES)(pause.resume)
app.command("find", epilog=find.EXAMPLES)(find.find)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("import", epilog=importing.EXAMPLES)(importing.take_over)
app.command("recover", epilog=recover.EXAMPLES)(recover.recover)
app.add_typer(config.app, name="config")
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("bench", epilog=bench.EXAMPLES)(bench.bench)
app.add_typer(bank.app, name="bank")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("idem-outbox"))
        raise typer.Exit


@app.callback()
def idem(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """idem runs a side effect in another system once, and tells you when it cannot be sure it ran."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A traceback means a bug in idem."""
    with streams.guarded() as out:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        out.flush()
        if out.error is not None:
            say(f"idem: cannot write the output: {out.error.strerror}")
            code = code or FAILED
    return code


@cache
def _command() -> Callable[..., object]:
    """All commands, put together once."""
    return typer.main.get_command(app)


def _run(arguments: Sequence[str]) -> int:
    for each in arguments:
        try:
            each.encode()
        except UnicodeEncodeError:  # the database takes no other text
            say(f"idem: the argument {each!a} is not UTF-8 text: write it in UTF-8")
            return USAGE
    try:
        _command()(args=list(arguments), prog_name="idem")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED if end.code else 0
    except KeyboardInterrupt:
        return FAILED
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        message, code = explained
        say(f"idem: {message}")
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
