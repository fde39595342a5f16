"""`idem recover`: after a restore, a clone or a fail-over, decide which rows idem may still send."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from idem.cli.base import opening
from idem.cli.base.option_groups import OperatorOptions, grouped
from idem.cli.base.options import Why, confirm, examples
from idem.cli.base.output import as_json, say
from idem.outbox.values.plural import several

if TYPE_CHECKING:
    from idem.outbox.recovery.quarantine import Quarantined

EXAMPLES = examples(
    'idem recover --lost --reason "restored the backup of 02:00"',
    'idem recover --lossless --reason "dump of a stopped system, nothing was sent since"',
)


@grouped
def recover(
    reason: Why,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost", help="The database lost commits: queued rows may have been sent, so they become unknown."
        ),
    ] = False,
    lossless: Annotated[
        bool,
        typer.Option(
            "--lossless",
            help="The database lost nothing: rows that the change made unknown get their earlier status back.",
        ),
    ] = False,
    *,
    options: OperatorOptions,
) -> None:
    """State what a change of the database lost. idem cannot notice a restored snapshot: begin with --lost.

    --lost counts the rows of each kind before it asks. Rows whose second send is harmless, because the provider
    remembers our key long enough, stay queued either way, each until its own limit. Run it before the daemons start;
    they do not judge the change again.
    """
    if lost == lossless:
        raise typer.BadParameter("give either --lost or --lossless: did the change of the database lose commits?")
    done = asyncio.run(_recover(options, lost=lost, reason=reason))
    if options.as_data:
        as_json(dataclasses.asdict(done))
    else:
        for line in _result(done, lost=lost):
            say(line)


@dataclasses.dataclass(frozen=True)
class Recovered:
    """The result. `left`: rows that may still be sent; the last of them until `left_until` (UTC).

    `became` is "unknown", or "as before" for rows that are queued or at rest again. `waiting`: rows that other
    sessions lock. No daemon sends or settles them until they are doubted; if nothing was lost, they stay doubted.
    """

    rows: int
    became: str
    left: int = 0
    left_until: str | None = None
    open: int = 0
    waiting: int = 0


def _result(done: Recovered, *, lost: bool) -> Iterator[str]:
    if not lost:
        have = several(done.rows, "row has its", "rows have their")
        yield f"{have} earlier status again; the daemons treat this database as the one before"
        if done.waiting:
            yield (
                f"{several(done.waiting, 'row stays', 'rows stay')} doubted, because other sessions lock them. "
                "Terminate these sessions (pg_stat_activity shows them with open transactions), and run the same "
                "command again"
            )
        return
    yield f"{several(done.rows, 'row is', 'rows are')} now unknown; the reconciler asks the provider about them"
    if done.left:
        yield (
            f"{several(done.left, 'row is', 'rows are')} unchanged, because a second send is harmless while the "
            "provider remembers their keys. Each may be sent until its own window ends, the last until "
            f"{done.left_until}; after that it becomes unknown"
        )
    if done.open:
        yield (
            f"{several(done.open, 'row was', 'rows were')} already claimed, unknown or awaiting; idem settles them by "
            "what it sees from now on"
        )
    if done.waiting:
        yield (
            f"other sessions lock {several(done.waiting, 'row')}, and no daemon sends or settles them. The sweeper "
            "doubts each row when its session ends. `idem doctor` names these sessions (`locks`): end their "
            "transactions"
        )


async def _recover(options: OperatorOptions, *, lost: bool, reason: str) -> Recovered:
    from idem.outbox.observe import telemetry
    from idem.outbox.recovery import preview, quarantine, release

    telemetry.set_up(json=False, level="warning")
    catalogue, by = opening.catalogue(opening.configuration(options.config)), options.operator
    async with opening.writing(options.config, catalogue.environment) as connection:
        if not lost:
            confirm("Give the rows that the change made unknown their earlier status back?", yes=options.yes)
            released = await release.lossless(connection, catalogue, by=by, reason=reason)
            return Recovered(released.rows, "as before", waiting=released.waiting)
        if not options.yes:
            for line in _foreseen(await preview.foreseen(connection, catalogue)):
                say(line)
        confirm("Doubt all these rows?", yes=options.yes)
        found = await quarantine.lost(connection, catalogue, by=by, reason=reason)
        return Recovered(found.unknown, "unknown", found.left, _until(found.left_for), found.open, found.waiting)


def _until(seconds: float | None) -> str | None:
    return None if seconds is None else (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def _foreseen(counted: Quarantined) -> Iterator[str]:
    yield (
        f"{several(counted.unknown, 'row')} will become unknown: idem does not send them, and the reconciler asks the "
        "provider about them"
    )
    yield (
        f"{several(counted.left, 'row')} will not change, because a second send is harmless while the provider "
        f"remembers their keys{'' if counted.left_for is None else f', the last until {_until(counted.left_for)}'}"
    )
    already = several(counted.open, "row is", "rows are")
    yield f"{already} already claimed, unknown or awaiting; earlier observations of them no longer count"
