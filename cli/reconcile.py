"""`idem reconcile`: settle unknown calls once, and compare the ledger with the providers' own lists."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idem.cli.base import opening
from idem.cli.base.application import App
from idem.cli.base.failures import FINDINGS, INCOMPLETE
from idem.cli.base.option_groups import ProcessOptions
from idem.cli.base.options import Config, Json, SinceOption, examples, moment
from idem.cli.base.output import age, as_json, table
from idem.cli.daemons import reconciler_of, run_daemon, show_pass
from idem.cli.operator import ledger_report

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
  matched       both sides agree
  settled now   it was open here, and the provider's object showed how it ended
  ours only     completed here, but the provider has nothing, neither on its list nor in a look-up
  theirs only   the provider has it, and this ledger does not have it or differs
  foreign       not ours: without our tag, and neither its key nor its reference is known here
  open          still in progress here
  decided       a discrepancy that an operator has decided before
  not compared  not on the list, and the look-up failed
Exit code 0: both sides agree. 3: discrepancies, each with a dead letter. 4: none was found, but a list
could not be read to its end, a doubt could not be cleared (run it again), or no provider here has a list."""
)


def reconcile(
    config: Config = None,
    app: App = None,
    since: SinceOption = None,
    now: Annotated[bool, typer.Option("--now", help="Look up every unknown call now, even if it is not due.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --since: only compare and show; settle and write nothing.")
    ] = False,
    as_data: Json = False,
) -> None:
    """Settle unknown calls once: those that are due, with --now all, with --since those accepted since then.

    It first ends claims whose lease has expired. It shows the result of each call and what is left. Look-ups before
    their due time do not count against the schedule. With --since the ledger check follows: it compares the provider's
    own list of that time with this ledger. What only one side has becomes a dead letter, once.
    """
    from_then = moment(since)
    if dry_run and since is None:
        raise typer.BadParameter("it needs --since: without it there is nothing to compare", param_hint="--dry-run")
    if dry_run and now:
        raise typer.BadParameter("it settles nothing, so it cannot go with --now", param_hint="--dry-run")

    async def run(database: Database, catalogue: Catalogue, found: Configuration) -> dict[str, Any]:
        from idem.outbox.operator import listing
        from idem.reconciler.daemon import ReconcilerPass
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
            done = ReconcilerPass() if dry_run else await daemon.run_once(hasten=now, since=begin)
            if since is not None:
                seen = await check(database, catalogue, lanes, start, dry_run=dry_run)
        finally:
            await daemon.close()
        async with database.connection() as connection:
            left = await listing.unknowns(connection, awaiting=True)
        return asdict(done) | {"left": left, "ledger": seen}

    options = ProcessOptions(config=config, app=app, log_level="warning", wait=0.0)
    result = run_daemon(options, "reconcile", run)
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
        ["intent", "status", "provider", "age", "next look-up in", "look-ups"],
        [
            [u["intent_id"], u["status"], u["provider"], age(u["age"]), age(u["next_lookup_in"]), u["lookups"]]
            for u in left
        ],
        empty="no call is left unknown",
    )
    if seen is not None:
        ledger_report.show(seen)
