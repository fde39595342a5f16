"""`idem bench` on the command line. `idem.cli.main` mounts it."""

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from idem.cli.base import opening
from idem.cli.base.options import Config, Json, examples
from idem.cli.base.output import as_json, say
from idem.cli.bench.settings import BenchSettings, Part

EXAMPLES = examples("idem bench", "idem bench --only accept,drain --json", "idem bench --plot bench.svg --repeat 3")
NAMES = ",".join(Part)


def bench(
    intents: Annotated[int, typer.Option(min=1, max=10_000_000, help="Intents to accept and settle.")] = 5000,
    only: Annotated[str, typer.Option(metavar=NAMES, help="What to measure.")] = NAMES,
    slots: Annotated[int, typer.Option(min=1, max=1000, help="Calls in flight, of one worker.")] = 100,
    latency: Annotated[float, typer.Option(min=0, max=10_000, help="The HTTP provider's answer, in ms.")] = 20.0,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Workers.")] = 1,
    connections: Annotated[int, typer.Option(min=1, max=500, help="Connections of the accepting client.")] = 16,
    repeat: Annotated[int, typer.Option(min=1, max=100, help="Repetitions; medians are shown.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Also write a chart, as SVG.")] = None,
    as_data: Json = False,
    config: Config = None,
    database_url: Annotated[str | None, typer.Option(help="A server on which the role may create a database.")] = None,
) -> None:
    """Measure idem on a database server, in a database of its own, beside a floor of bare statements."""
    from idem.cli.bench import report, run

    parts = frozenset(Part(word) for word in only.split(","))
    settings = BenchSettings(intents, parts, connections, slots, latency / 1e3, processes, repeat)
    with contextlib.ExitStack() as stack:
        url = database_url or os.environ.get(opening.URL) or stack.enter_context(run.embedded())
        result = run.run(settings, url, say)
    if as_data:
        as_json(report.as_data(result))
    else:
        report.show(result)
