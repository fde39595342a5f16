"""The demo as a command's body: header, play, closing words, exit code."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Final

import typer

from idem.cli.demo import place, report, stage
from idem.cli.demo.constants import SMALLEST_FACTOR, Constants
from idem.cli.demo.scenario import sabotage_needs
from idem.cli.demo.settings import DemoSettings
from idem.outbox.values.errors import ConfigError

HELD: Final = 0
BROKE: Final = 1
NO_VICTIM: Final = 3
"""A sabotage that did not take place: nothing is proven."""
NOT_CAUGHT: Final = 4
"""A sabotage that took place, and the proof did not see it: the proof is worth nothing."""
INTERRUPTED: Final = 130

LARGEST_FACTOR: Final = 10.0
"""Beyond it a demo takes hours."""


def perform(settings: DemoSettings) -> int:
    """Play the demo and say what came of it, as an exit code.

    Raises ConfigError for settings that cannot work, EmbeddedError where no server can be had.
    """
    if not math.isfinite(settings.factor) or settings.factor > LARGEST_FACTOR:
        raise ConfigError(f"--factor: {settings.factor:g} is no number to multiply times by; leave it out, or use 0.05")
    if settings.factor < SMALLEST_FACTOR:
        raise ConfigError(
            f"--factor: {settings.factor:g} makes times so short that a busy machine breaks the bank's contract; "
            f"use {SMALLEST_FACTOR:g} or more"
        )
    times = Constants(settings.factor)
    typer.echo(report.header(settings, times), err=settings.json)
    try:
        result = stage.play(settings, times)
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("interrupted; every process of the demo has ended", err=True)
        return INTERRUPTED
    typer.echo(report.to_json(result) if settings.json else report.closing(result))
    if settings.sabotage is not None and result.victim is None:
        typer.echo(f"it needs {sabotage_needs(settings.sabotage)}: try another seed", err=True)
    return _leave(settings, result)


def _leave(settings: DemoSettings, result: report.Result) -> int:
    if settings.keep or not result.holds:
        typer.echo(f"the records are in {result.folder}", err=True)
    else:
        place.clear(Path(result.folder))
    if settings.sabotage is not None and not result.caught:
        return NO_VICTIM if result.victim is None else NOT_CAUGHT
    return HELD if result.holds else BROKE
