"""Prints the result of a ledger check, and a discrepancy with both of its sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from idem.cli.base.output import say, table, text
from idem.outbox.values.plural import several

if TYPE_CHECKING:
    from idem.reconciler.ledger.discrepancies import Opened
    from idem.reconciler.ledger.report import Checked, LaneReport

COUNTS = ("matched", "settled_now", "ours_only", "theirs_only", "foreign", "open", "decided", "not_compared")
SHOWN = 100
"""Most discrepancies that the table shows. All of them are dead letters and are in the JSON."""


def show(seen: Checked) -> None:
    """Print a ledger check: one line for each account, then each discrepancy and the next step."""
    typer.echo()
    table(
        ["account", "list", "objects", *(name.replace("_", " ") for name in COUNTS)],
        [[f"{lane.provider}/{lane.account}", _walked(lane), *_numbers(lane)] for lane in seen.lanes],
        empty="no account to compare: no operation of this configuration calls a provider",
    )
    if settled := [(lane, each) for lane in seen.lanes for each in lane.settled]:
        typer.echo()
        table(
            ["settled now", "was", "there", "reference"],
            [[UUID(each["intent"]), each["was"], each["outcome"], each["reference"]] for _, each in settled[:SHOWN]],
            empty="",
        )
    found = [(found.details(), entry) for lane in seen.lanes for found, entry in lane.found]
    if found:
        typer.echo()
        table(
            ["discrepancy", "account", "reference", "here", "there", "intent", "dead letter"],
            [
                [each["class"], f"{each['provider']}/{each['account']}", each["reference"] or each["provider_key"],
                 _here(each), _there(each), UUID(each["here"]["intent"]) if each["here"] else None, _entry(entry)]
                for each, entry in found[:SHOWN]
            ],
            empty="",
        )  # fmt: skip
        if len(found) > SHOWN:
            say(f"{len(found) - SHOWN} more: --json shows all")
    _conclude(seen)


def _entry(entry: Opened | None) -> UUID | str | None:
    if entry is None or entry.resolution is None:
        return None if entry is None else entry.letter
    return f"decided: {entry.resolution}"


def _conclude(seen: Checked) -> None:
    if seen.dry_run:
        say("nothing was written (--dry-run)")
    if seen.discrepancies:
        found = several(seen.discrepancies, "discrepancy", "discrepancies")
        say(f"{found}: `idem dlq list --reason-code discrepancy`, then `idem dlq show`")
    if not seen.complete:
        say("NOT COMPLETE: what was not compared may differ. Fix the cause above and run it again")
    elif not seen.compared:
        say(
            "NOT COMPARED: no provider has a list configured. Write [providers.<name>.list] for a provider that can "
            "list"
        )
    elif seen.clean:
        say("clean: both sides agree")


def _walked(lane: LaneReport) -> str:
    match lane.walked:
        case "complete":
            return "complete"
        case "incomplete":
            return f"NOT COMPLETE: {lane.why}"
        case "not_listed":
            return "cannot be listed"


def _numbers(lane: LaneReport) -> list[object]:
    if lane.walked == "not_listed":
        return [None] * (1 + len(COUNTS))
    return [lane.objects, *(lane.counts[name] for name in COUNTS)]


def _here(each: dict[str, Any]) -> str:
    return "nothing" if each["here"] is None else _side(each, "here", each["here"]["outcome"] or each["here"]["state"])


def _there(each: dict[str, Any]) -> str:
    if each["there"] is None:
        return "nothing"
    return _side(each, "there", each["there"]["outcome"] or each["there"]["status"])


def _side(each: dict[str, Any], side: str, outcome: str | None) -> str:
    words = [f"{d['what']} {text(d[side])}" for d in each["differs"] if d["what"] != "outcome"]
    return ", ".join([outcome or "there", *words])


def show_discrepancy(details: dict[str, Any]) -> None:
    """Print both sides of a discrepancy and what to do about it."""
    here, there = details.get("here") or {}, details.get("there") or {}
    rows = [
        ["reference", here.get("reference"), there.get("reference")],
        ["outcome", here.get("outcome") or here.get("state"), there.get("outcome")],
        ["status", None, there.get("status")],
        ["time", here.get("settled_at"), there.get("created")],
    ]
    ours, theirs = here.get("fields") or {}, there.get("fields") or {}
    rows += [[name, ours.get(name), theirs.get(name)] for name in sorted({*ours, *theirs})]
    typer.echo()
    table(
        ["", "here", "there"],
        [row for row in rows if row[1] is not None or row[2] is not None],
        empty="neither side has a record",
    )
    typer.echo()
    if details.get("ours_by"):
        typer.echo(f"it counts as ours because {details['ours_by']}")
    typer.echo(f"next: {details['next']}")
