"""`idem doctor`: everything that is wrong or soon will be, and what to do about it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from idem.cli.application import App
from idem.cli.doctor.findings import CheckResult, Level, several
from idem.cli.failures import FAILED, FINDINGS
from idem.cli.options import Config, Json, examples
from idem.cli.output import as_json, labelled, text
from idem.outbox.values.terminal import coloured

EXAMPLES = (
    examples("idem doctor", "idem doctor --replicas 4", "idem doctor --strict --json")
    + "\n\n\b\nExit codes: 0 no errors; 1 at least one error; 3 warnings, with --strict."
)

COLOURS: dict[Level, str] = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    config: Config = None,
    app: App = None,
    replicas: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many processes of each kind run: for the sum of connections.")
    ] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings make the exit code 3.")] = False,
    as_data: Json = False,
) -> None:
    """Check server, schema, rights, configuration, daemons and queue, and say what to do about what is wrong.

    Changes nothing, and asks no provider. Each check is bounded in time, so it may be run on a database in trouble.
    Limits are in [doctor] of idem.toml.
    """
    found = asyncio.run(_doctor(config, replicas, show=not as_data))
    counts = {level: sum(each.level == level for each in found) for level in COLOURS}
    if as_data:
        as_json(
            {
                "ok": counts["error"] == 0,
                "errors": counts["error"],
                "warnings": counts["warning"],
                "first": None if (first := first_of(found)) is None else {"check": first.check, "do": first.do},
                "findings": [
                    {"check": each.check, "level": each.level, "what": each.what, "do": each.do} for each in found
                ],
            }
        )
    else:
        typer.echo()
        labelled("", summary(found))
    if counts["error"]:
        raise typer.Exit(FAILED)
    if counts["warning"] and strict:
        raise typer.Exit(FINDINGS)


def first_of(found: list[CheckResult]) -> CheckResult | None:
    """What to do first: the checks go from what others need to what needs others, and errors come before warnings."""
    for level in ("error", "warning"):
        for each in found:
            if each.level == level:
                return each
    return None


def summary(found: list[CheckResult]) -> str:
    """The last line: how many findings of each level, the names of their checks, and what to do first."""
    parts = []
    for level in ("error", "warning"):
        names = list(dict.fromkeys(each.check for each in found if each.level == level))
        count = several(sum(each.level == level for each in found), level)
        parts.append(count + (f" ({', '.join(names)})" if names else ""))
    line = f"{', '.join(parts)}, {sum(each.level == 'ok' for each in found)} in order"
    first = first_of(found)
    return line if first is None else f"{line}. First, {first.check}: {text(first.do)}"


async def _doctor(config: Path | None, replicas: int, *, show: bool) -> list[CheckResult]:
    from idem.cli.doctor.rounds import round_of

    found: list[CheckResult] = []
    async for finding in round_of(config, replicas):
        found.append(finding)
        if show:
            _show(finding)
    return found


def _show(finding: CheckResult) -> None:
    # Line by line, as it is found: a database in trouble takes its time.
    level = f"{finding.level:7}"
    if coloured(sys.stdout):
        level = typer.style(level, fg=COLOURS[finding.level], bold=finding.level != "ok")
    typer.echo(f"{level}  {finding.check}: {text(finding.what)}")
    if finding.do:
        typer.echo(f"         → {text(finding.do)}")
