"""`idem reconcile`: settle once what is unknown, and hold the ledger against the providers' own lists."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idem.cli import checked, opening
from idem.cli.application import App
from idem.cli.daemons import reconciler_of, run_daemon, show_pass
from idem.cli.failures import FINDINGS, INCOMPLETE
from idem.cli.options import Config, Json, Since, examples, moment
from idem.cli.output import age, as_json, table

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.pool import Database
    from idem.outbox.domain.catalogue import Catalogue
    from idem.reconciler.ledger.report import Checked

EXAMPLES = (
    examples("idem reconcile --now", "idem reconcile --since 24h", "idem reconcile --since 3d --dry-run --json")
    + """

\b
What --since counts, of each account whose provider has a `list`:
  matched       both sides say the same
  settled now   it was not settled here, and the provider's own object said how it ended
  ours only     completed here, and the provider has nothing: not on its list, and not when it was asked
  theirs only   the provider has it, and this ledger does not, or says something else about it
  foreign       somebody else's: without our mark, and known here by neither key nor reference
  open          still in work here
  decided       a discrepancy that somebody has decided before
  not compared  not on the list, and the question about it failed
Exit code 0: both sides say the same. 3: discrepancies, each with a dead letter. 4: none was found, but a list
could not be read to its end, a doubt could not be cleared (run it again), or no provider here has a list."""
)


def reconcile(
    config: Config = None,
    app: App = None,
    since: Since = None,
    now: Annotated[bool, typer.Option("--now", help="Ask about everything unknown now, whenever it is due.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --since: settle nothing, write nothing, only compare and show."),
    ] = False,
    as_data: Json = False,
) -> None:
    """Settle once what is unknown: with --now all of it, with --since what was accepted from then on, else what is due.

    Shows what became of each, and what is left. Claims whose lease is over are ended first. Looks made before they are
    due do not count against the schedule. With --since the ledger check follows: it compares the provider's own list of
    that time with this ledger, and what only one side has becomes a dead letter, once.
    """
    from_then = moment(since)
    if dry_run and since is None:
        raise typer.BadParameter("it goes with --since: there is nothing to compare", param_hint="--dry-run")
    if dry_run and now:
        raise typer.BadParameter("it settles nothing, and --now is there to settle", param_hint="--dry-run")

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> dict[str, Any]:
        from idem.outbox.operator import listing
        from idem.reconciler.daemon import Pass
        from idem.reconciler.ledger.check import check, ensure
        from idem.reconciler.ledger.window import Since as Start

        daemon = reconciler_of(database, catalogue, found)
        lanes = [(lane.name, lane.lane) for lane in daemon.lanes]
        start = Start(ago=from_then) if isinstance(from_then, float) else Start(from_then)
        seen: Checked | None = None
        try:
            if since is not None:
                await ensure(database, lanes, start)
                await daemon.check_accounts(store=not dry_run)
            async with database.connection() as connection:
                begin = await opening.time_of(connection, from_then)
            if not dry_run:
                await daemon.sweep()
            done = Pass() if dry_run else await daemon.run_once(hasten=now, since=begin)
            if since is not None:
                seen = await check(database, catalogue, lanes, start, dry_run=dry_run)
        finally:
            await daemon.close()
        async with database.connection() as connection:
            left = await listing.unknowns(connection, awaiting=True)
        return asdict(done) | {"left": left, "ledger": seen}

    result = run_daemon(config, "reconcile", run, log="console", level="warning", port=None, host="", wait=0.0)
    left, seen = result.pop("left"), result.pop("ledger")
    if as_data:
        as_json(result | {"left": left, "ledger": None if seen is None else seen.as_data()})
    else:
        _show(result, left, seen)
    if seen is not None and not seen.clean:
        raise typer.Exit(FINDINGS if seen.discrepancies else INCOMPLETE)


def _show(done: dict[str, Any], left: list[dict[str, Any]], seen: Checked | None) -> None:
    show_pass(done, as_data=False)
    table(
        ["intent", "status", "provider", "age", "next look in", "looks"],
        [[u["intent_id"], u["status"], u["provider"], age(u["age"]), age(u["next_look_in"]), u["looks"]] for u in left],
        empty="nothing is left unknown",
    )
    if seen is not None:
        checked.show(seen)
