"""`idem bench` on the command line. `idem.cli.main` mounts it: `app.command("bench", epilog=EXAMPLES)(bench)`."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from idem.cli.base.options import Config, Json, examples
from idem.cli.base.output import as_json, say
from idem.cli.bench.settings import BenchPart, BenchSettings

EXAMPLES = examples(
    "idem bench",
    "idem bench --only accept,drain --intents 20000 --repeat 3 --json",
    "IDEM_DATABASE_URL=postgresql://… idem bench --plot bench.svg",
)
NAMES = ",".join(BenchPart)
INTERRUPTED = 130
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def bench(
    intents: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Number of intents; half as many go over HTTP.")
    ] = 5000,
    only: Annotated[str, typer.Option(metavar="LIST", help=f"What to measure, of {NAMES}.")] = NAMES,
    connections: Annotated[int, typer.Option(min=1, max=500, help="Connections over which intents are accepted.")] = 16,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Number of workers.")] = 1,
    slots: Annotated[int, typer.Option(min=1, max=1000, help="Calls that a worker makes at the same time.")] = 100,
    latency: Annotated[
        float, typer.Option(min=0, max=10_000, help="Milliseconds after which the HTTP provider answers.")
    ] = 20.0,
    repeat: Annotated[int, typer.Option(min=1, max=100, help="Repetitions, of which it shows the medians.")] = 1,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a chart into this file, as SVG.")
    ] = None,
    as_data: Json = False,
    config: Config = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            help="A server on which the role may create a database; default that of IDEM_DATABASE_URL or the "
            "configuration, else an embedded server."
        ),
    ] = None,
) -> None:
    """Measure what an intent costs on a database server, beside a floor: the same rows by bare statements.

    It creates a database of its own there, and drops it at the end; those of killed runs too. Real processes accept,
    work and answer: rates, latencies, CPU, WAL, dead rows and disk by the intent. It uses the server's and this
    machine's power for about a minute; 130: interrupted.
    """
    settings = BenchSettings(intents, _parts(only), connections, slots, latency / 1e3, processes, repeat)
    from idem.cli.bench import plot as plotting
    from idem.cli.bench import report, run, server

    try:
        with _ended_once(), contextlib.ExitStack() as stack:
            url = server.named(config, database_url) or stack.enter_context(run.embedded())
            result = run.run(settings, url, say)
    except KeyboardInterrupt:
        say("interrupted; all processes of the bench have stopped")
        raise typer.Exit(INTERRUPTED) from None
    if plot is not None:
        plot.write_text(plotting.svg(result), encoding="utf-8")
    if as_data:
        as_json(report.as_data(result))
    else:
        report.show(result)


def _parts(only: str) -> frozenset[BenchPart]:
    try:
        return frozenset(BenchPart(word.strip()) for word in only.split(","))
    except ValueError:
        raise typer.BadParameter(f"choose of {NAMES}, with commas between", param_hint="--only") from None


@contextlib.contextmanager
def _ended_once() -> Iterator[None]:
    """Whatever asks the process to end raises KeyboardInterrupt, once: nothing interrupts the drop of the database."""

    def end(*_: Any) -> None:
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
