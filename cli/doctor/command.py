"""`idem doctor`: finds present and coming problems, and prints what to do about each."""

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from idem.cli.base.application import App
from idem.cli.base.failures import FAILED, FINDINGS
from idem.cli.base.options import Config, Json, examples
from idem.cli.base.output import as_json, labelled, text
from idem.cli.doctor.findings import CheckResult, Severity
from idem.outbox.values.plural import several
from idem.outbox.values.terminal import coloured

EXAMPLES = (
    examples("idem doctor", "idem doctor --replicas 4", "idem doctor --strict --json")
    + "\n\n\b\nExit codes: 0 no errors; 1 at least one error; 3 warnings, with --strict."
)

COLOURS: dict[Severity, str] = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    config: Config = None,
    app: App = None,
    replicas: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many processes of each kind run, to add up their connections.")
    ] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 3 if there are warnings.")] = False,
    as_data: Json = False,
) -> None:
    """Check server, schema, rights, configuration, daemons and queue, and tell what to do about each problem.

    It changes nothing and asks no provider. Each check has a time limit, so you can run it on a database in trouble.
    The thresholds are in [doctor] of idem.toml.
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
                "findings": [asdict(each) for each in found],
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
    """The finding to fix first. Checks run before those that depend on them, and errors come before warnings."""
    for level in ("error", "warning"):
        for each in found:
            if each.level == level:
                return each
    return None


def summary(found: list[CheckResult]) -> str:
    """The last line: the number of findings of each level, the names of their checks, and what to do first."""
    parts = []
    for level in ("error", "warning"):
        names = list(dict.fromkeys(each.check for each in found if each.level == level))
        count = several(sum(each.level == level for each in found), level)
        parts.append(count + (f" ({', '.join(names)})" if names else ""))
    line = f"{', '.join(parts)}, {sum(each.level == 'ok' for each in found)} in order"
    first = first_of(found)
    return line if first is None else f"{line}. First, {first.check}: {text(first.do)}"


async def _doctor(config: Path | None, replicas: int, *, show: bool) -> list[CheckResult]:
    from idem.cli.doctor.checks import round_of

    found: list[CheckResult] = []
    async for finding in round_of(config, replicas):
        found.append(finding)
        if show:
            _show(finding)
    return found


def _show(finding: CheckResult) -> None:
    # Print each line as it is found, because a database in trouble is slow.
    level = f"{finding.level:7}"
    if coloured(sys.stdout):
        level = typer.style(level, fg=COLOURS[finding.level], bold=finding.level != "ok")
    typer.echo(f"{level}  {finding.check}: {text(finding.what)}")
    if finding.do:
        typer.echo(f"         → {text(finding.do)}")
