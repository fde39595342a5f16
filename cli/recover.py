"""`idem recover`: after a restore, a clone or a fail-over, what may still be sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from idem.cli import opening
from idem.cli.options import By, Config, Json, Why, Yes, confirm, examples, who
from idem.cli.output import as_json, say

EXAMPLES = examples(
    'idem recover --lost --reason "restored the backup of 02:00"',
    'idem recover --lossless --reason "dump of a stopped system, nothing was sent since"',
)


def recover(
    reason: Why,
    config: Config = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="Commits were lost: queued rows may have been sent, so they become unknown.")
    ] = False,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Nothing was lost: rows that the change made unknown go back to work.")
    ] = False,
    by: By = None,
    yes: Yes = False,
    as_data: Json = False,
) -> None:
    """Say what a change of the database lost. A restored snapshot cannot be noticed: begin with --lost.

    Rows whose second send is harmless (the provider remembers our key for long enough) stay queued either way.
    """
    if lost == lossless:
        raise typer.BadParameter("say either --lost or --lossless: did the change of the database lose commits?")
    rows = asyncio.run(_recover(config, lost=lost, reason=reason, by=who(by), yes=yes))
    if as_data:
        as_json({"rows": rows, "became": "unknown" if lost else "pending"})
    else:
        say(f"{rows} rows are {'unknown now: the reconciler asks about them' if lost else 'again what they were'}")


async def _recover(config: Path | None, *, lost: bool, reason: str, by: str, yes: bool) -> int:
    from idem.outbox import moves, recovery

    catalogue = opening.catalogue(opening.configuration(config))
    async with opening.writing(config, catalogue.environment) as connection:
        if lost:
            confirm("Make every queued row unknown, unless a second send is harmless?", yes=yes)
            async with moves.transaction(connection):
                return await recovery.quarantine(connection, catalogue, reason, by=by)
        confirm("Put the rows that the change made unknown back to work?", yes=yes)
        return await recovery.release(connection, catalogue, by=by, reason=reason)
