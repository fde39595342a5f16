"""The body of the command: prints the header, plays the demo, prints the result; returns the exit code."""

import asyncio
import math
import shutil
from typing import Final

import typer

from idem.cli.demo import report, stage
from idem.cli.demo.constants import SMALLEST_FACTOR, Constants
from idem.cli.demo.scenario import NEEDS
from idem.cli.demo.settings import FLOW_SABOTAGES, DemoSettings
from idem.errors import ConfigError

HELD: Final = 0
BROKE: Final = 1
NO_VICTIM: Final = 3
"""The sabotage found no victim: nothing is proven."""
NOT_CAUGHT: Final = 4
"""The proof missed the sabotage: the proof is worthless."""
INTERRUPTED: Final = 130

LARGEST_FACTOR: Final = 10.0
"""Above it a demo takes hours."""


def perform(settings: DemoSettings) -> int:
    """Run the demo and return an exit code. Raises ConfigError for settings that cannot work, EmbeddedError if no
    server can start.
    """
    if not math.isfinite(settings.factor) or settings.factor > LARGEST_FACTOR:
        raise ConfigError(f"--factor: {settings.factor:g} is not a usable factor. Leave it out, or use 0.05")
    if settings.factor < SMALLEST_FACTOR:
        raise ConfigError(
            f"--factor: {settings.factor:g} makes times so short that a busy machine breaks the bank's contract. Use "
            f"{SMALLEST_FACTOR:g} or more"
        )
    if settings.sabotage in FLOW_SABOTAGES and not settings.flows:
        raise ConfigError(f"--sabotage {settings.sabotage} needs flows: leave --flows out, or use 0.3")
    times = Constants(settings.factor)
    typer.echo(report.header(settings, times), err=settings.json)
    try:
        result = stage.play(settings, times)
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("interrupted; all processes of the demo have stopped", err=True)
        return INTERRUPTED
    typer.echo(report.to_json(result) if settings.json else report.closing(result))
    if settings.sabotage is not None and result.victim is None:
        typer.echo(f"it needs {NEEDS[settings.sabotage]}. Try another seed", err=True)
    return _leave(settings, result)


def _leave(settings: DemoSettings, result: report.DemoResult) -> int:
    if settings.keep or not result.holds:
        typer.echo(f"the records are in {result.folder}", err=True)
    else:
        shutil.rmtree(result.folder, ignore_errors=True)
    if settings.sabotage is not None and not result.caught:
        return NO_VICTIM if result.victim is None else NOT_CAUGHT
    return HELD if result.holds else BROKE
