"""`idem unknowns`: calls whose outcome is unknown."""

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer

from idem.cli.base.option_groups import ListFilters, grouped
from idem.cli.base.options import Config, Json, Limit, examples, group
from idem.cli.base.output import age, as_json, table, text
from idem.cli.operator import lists

app = group("Calls whose outcome is unknown.", "idem unknowns list", "idem unknowns export > unknowns.csv")
Awaiting = Annotated[bool, typer.Option("--awaiting", help="Include calls that the provider is still working on.")]

COLUMNS = (
    "intent_id", "status", "operation", "provider", "account", "label", "attempt", "lookups", "absences",
    "provider_key", "provider_reference", "status_since", "next_lookup_at", "quiet_after", "replay_window_left",
    "dead_letters",
)  # fmt: skip


@app.command("list", epilog=examples("idem unknowns list", "idem unknowns list --provider bank --awaiting --json"))
@grouped
def list_(
    filters: ListFilters, config: Config = None, awaiting: Awaiting = False, limit: Limit = 100, as_data: Json = False
) -> None:
    """List unknown calls, oldest first, with age, attempts, next look-up and what is left of the replay window.

    --since and --until select by the time at which a call became unknown.
    """
    found = _read(config, filters, awaiting, limit)
    if as_data:
        as_json({"unknowns": found})
        return
    table(
        ["intent", "status", "provider", "account", "age", "attempts", "look-ups", "next look-up in",
         "replay window left", "dead letters"],
        [
            [u["intent_id"], u["status"], u["provider"], u["account"], age(u["age"]), u["attempt"], u["lookups"],
             age(u["next_lookup_in"]), age(u["replay_window_left"]), ", ".join(u["dead_letters"]) or None]
            for u in found
        ],
        empty="no unknown call matches" if awaiting or filters != ListFilters() else "no call is unknown",
        drop=("look-ups", "attempts", "account", "dead letters", "next look-up in", "provider", "status"),
    )  # fmt: skip


@app.command(epilog=examples("idem unknowns export > unknowns.csv"))
@grouped
def export(filters: ListFilters, config: Config = None, awaiting: Awaiting = False) -> None:
    """Print all unknown calls as CSV with their provider keys, to compare with a provider's own list."""
    found = _read(config, filters, awaiting, 1_000_000)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in found:
        writer.writerow(["" if row[name] is None else _inert(text(row[name])) for name in COLUMNS])


def _inert(cell: str) -> str:
    # A label comes from a client's params, and a spreadsheet would run it as a formula.
    return f"'{cell}" if cell[:1] in ("=", "+", "@", "-", "\t", "\r") and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read(config: Path | None, filters: ListFilters, awaiting: bool, limit: int) -> lists.Records:
    from idem.outbox.operator import listing

    return lists.read(config, filters, listing.unknowns, awaiting=awaiting, limit=limit)
