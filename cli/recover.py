"""`idem recover`: after a restore, a clone or a fail-over, what may still be sent."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idem.cli import opening
from idem.cli.application import App
from idem.cli.options import By, Config, Json, Why, Yes, confirm, examples, who
from idem.cli.output import as_json, say

if TYPE_CHECKING:
    from idem.outbox.recovery.quarantine import Quarantined

EXAMPLES = examples(
    'idem recover --lost --reason "restored the backup of 02:00"',
    'idem recover --lossless --reason "dump of a stopped system, nothing was sent since"',
)


def recover(
    reason: Why,
    config: Config = None,
    app: App = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="Commits were lost: queued rows may have been sent, so they become unknown.")
    ] = False,
    lossless: Annotated[
        bool,
        typer.Option(
            "--lossless",
            help="Nothing was lost: no row is doubted, and what the change made unknown goes back.",
        ),
    ] = False,
    by: By = None,
    yes: Yes = False,
    as_data: Json = False,
) -> None:
    """Say what a change of the database lost. A restored snapshot cannot be noticed: begin with --lost.

    --lost counts the rows of each kind before it asks. Rows whose second send is harmless (the provider remembers our
    key for long enough) stay queued either way, each until its own last moment. Run it before the daemons start: none
    of them judges the change again then.
    """
    if lost == lossless:
        raise typer.BadParameter("say either --lost or --lossless: did the change of the database lose commits?")
    done = asyncio.run(_recover(config, lost=lost, reason=reason, by=who(by), yes=yes))
    if as_data:
        as_json(dataclasses.asdict(done))
    else:
        for line in _told(done, lost=lost):
            say(line)


@dataclasses.dataclass(frozen=True)
class Done:
    """What the word came to. `left`: rows that may still be sent; the last of them until `left_until` (UTC).

    `became` is "unknown", or "as before" for rows that are queued or at rest again. `waiting`: rows that other sessions
    hold: nobody sends or settles them until they are doubted, or they stay doubted where nothing was lost.
    """

    rows: int
    became: str
    left: int = 0
    left_until: str | None = None
    open: int = 0
    waiting: int = 0


def _told(done: Done, *, lost: bool) -> Iterator[str]:
    if not lost:
        yield f"{done.rows} rows are again what they were; the daemons take this database for the one before"
        if done.waiting:
            yield (
                f"{done.waiting} rows stay doubted, because other sessions hold them: end these sessions "
                "(pg_stat_activity shows them; their transactions stay open), and run the same command again"
            )
        return
    yield f"{done.rows} rows are unknown now: the reconciler asks about them"
    if done.left:
        yield (
            f"{done.left} rows stay as they were, because a second send is harmless while the provider remembers their "
            f"keys: each may be sent until its own window ends, the last until {done.left_until}; then it is unknown"
        )
    if done.open:
        yield f"{done.open} rows were claimed, unknown or awaited already: they are settled by what is seen from now on"
    if done.waiting:
        yield (
            f"{done.waiting} rows are held by other sessions, and nobody sends or settles them: the sweeper doubts "
            "each when its session lets go. `idem doctor` names these sessions (`locks`): end their transactions"
        )


async def _recover(config: Path | None, *, lost: bool, reason: str, by: str, yes: bool) -> Done:
    from idem.outbox.observe import telemetry
    from idem.outbox.recovery import preview, quarantine, release

    telemetry.set_up(json=False, level="warning")
    catalogue = opening.catalogue(opening.configuration(config))
    async with opening.writing(config, catalogue.environment) as connection:
        if not lost:
            confirm("Put the rows that the change made unknown back to work?", yes=yes)
            released = await release.lossless(connection, catalogue, by=by, reason=reason)
            return Done(released.rows, "as before", waiting=released.waiting)
        if not yes:
            for line in _foreseen(await preview.foreseen(connection, catalogue)):
                say(line)
        confirm("Doubt all these rows?", yes=yes)
        found = await quarantine.lost(connection, catalogue, by=by, reason=reason)
        return Done(found.unknown, "unknown", found.left, _until(found.left_for), found.open, found.waiting)


def _until(seconds: float | None) -> str | None:
    return None if seconds is None else (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def _foreseen(counted: Quarantined) -> Iterator[str]:
    yield f"{counted.unknown} rows will become unknown: nobody sends them, and the reconciler asks about them"
    yield (
        f"{counted.left} rows will stay as they are, because a second send is harmless while the provider remembers "
        f"their keys{'' if counted.left_for is None else f', the last until {_until(counted.left_for)}'}"
    )
    yield f"{counted.open} rows are claimed, unknown or awaited already: what was seen of them counts anew"
