"""`idem import`: import the queue, the calls in flight and the answers of an earlier system."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idem.cli.base import opening
from idem.cli.base.option_groups import OperatorOptions, grouped
from idem.cli.base.options import confirm, examples
from idem.cli.base.output import as_json, say
from idem.outbox.values.plural import several

if TYPE_CHECKING:
    from idem.outbox.importing.report import ImportReport

EXAMPLES = examples(
    "idem import outbox.jsonl --dry-run", 'idem import outbox.jsonl --reason "moved from the payments table"'
)

SHOWN = 20
"""How many wrong lines to show; the JSON has more."""


@grouped
def take_over(
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, readable=True, help="One JSON object per line, one per request."),
    ],
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            help="Why; the evidence records it with your name. Required, except with --dry-run.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every line and write nothing.")] = False,
    not_sent_before: Annotated[
        bool,
        typer.Option(
            "--not-sent-before",
            help="You state that idem never sent the queued and failed lines, or that the provider still remembers "
            "their keys. Required after a restore that lost commits.",
        ),
    ] = False,
    *,
    options: OperatorOptions,
) -> None:
    """Import a live outbox from a file of JSON lines, one object per request (docs/adopt/live-system.md).

    It checks every line first; if one is wrong, it writes nothing and the exit code is 1. A second run writes what is
    new and skips what it has imported before. After a restore that lost commits idem does not know what it imported
    and sent before, so new queued and failed lines require --not-sent-before.
    """
    if not file.is_file():
        raise typer.BadParameter(
            f"{file} is not a regular file. The import reads every line twice, to check it and then to write it. "
            "Write the export to a file and give that file"
        )
    if not dry_run and not reason.strip():
        raise typer.BadParameter("give a --reason, or check the file first with --dry-run")
    found = asyncio.run(_import(options, file, reason=reason, dry_run=dry_run, not_sent_before=not_sent_before))
    against = None if not_sent_before or found.wrong else found.against
    if options.as_data:
        as_json(
            {
                **{name: getattr(found, name) for name in ("lines", "new", "already", "expired", "wrong")},
                "errors": [{"line": error.number, "error": error.why} for error in found.errors],
                "refused": against,
                "written": not dry_run and not found.wrong and against is None,
            }
        )
    else:
        _show(found, dry_run, against)
    if found.wrong or against:
        raise typer.Exit(1)


async def _import(
    options: OperatorOptions, file: Path, *, reason: str, dry_run: bool, not_sent_before: bool
) -> ImportReport:
    from idem.outbox.importing import takeover

    async with opening.deciding(options.config) as (connection, catalogue):
        with file.open("rb") as lines:
            found = await takeover.check(connection, catalogue, lines)
        if dry_run or found.wrong or not found.new or (found.against and not not_sent_before):
            return found
        confirm(f"Import {sum(found.new.values())} of {several(found.lines, 'line')}?", yes=options.yes)
        with file.open("rb") as lines:
            return await takeover.take_over(
                connection, catalogue, lines, checked=found, by=options.operator, reason=reason
            )


def _show(found: ImportReport, dry_run: bool, against: str | None) -> None:
    for error in found.errors[:SHOWN]:
        say(str(error))
    if found.wrong:
        are = "is" if found.wrong == 1 else "are"
        say(f"nothing was written: {found.wrong} of {several(found.lines, 'line')} {are} wrong")
        return
    if against:
        say(against)
        return
    new = ", ".join(f"{count} {state}" for state, count in sorted(found.new.items())) or "nothing new"
    more = [f"{found.already} imported before"] if found.already else []
    more += [f"{found.expired} expired, skipped"] if found.expired else []
    done = "would be imported" if dry_run else "imported"
    say("; ".join([f"{done}: {new}", *more]))
