"""`idem config`: what idem.toml and the environment say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from idem.cli import opening
from idem.cli.application import application
from idem.cli.failures import USAGE
from idem.cli.options import Config, Json, examples
from idem.cli.output import as_json, table
from idem.outbox.errors import ConfigError

if TYPE_CHECKING:
    from idem.outbox.providers.contracts import Finding

app = typer.Typer(
    no_args_is_help=True,
    help="The configuration: idem.toml and IDEM_… variables.",
    epilog=examples("idem config check", "idem config show --json"),
)


@app.command(epilog=examples("idem config check", "idem config check -c production.toml --json"))
def check(config: Config = None, as_data: Json = False) -> None:
    """Check everything that can be checked without connecting to anything; exit code 2 if there is a mistake."""
    from idem.outbox.configuration import explain

    findings = _with_the_code(config, explain(config))
    wrong = any(finding.level == "error" for finding in findings)
    if as_data:
        as_json(
            {
                "ok": not wrong,
                "findings": [
                    {"level": f.level, "where": f.where, "what": f.what, "do": f.do, "line": f.line} for f in findings
                ],
            }
        )
    else:
        table(
            ["level", "where", "line", "what", "what to do"],
            [[f.level, f.where, f.line, f.what, f.do] for f in findings],
            empty="the configuration is in order",
        )
    if wrong:
        raise typer.Exit(USAGE)


def _with_the_code(config: Path | None, findings: list[Finding]) -> list[Finding]:
    """The same, with what the named application's code says of operations."""
    from idem.outbox.providers.contracts import Finding

    if any(finding.level == "error" for finding in findings):
        return findings  # the code would only say them again
    try:
        named = application(config)
        if named is None:
            return findings
        operations = named.configuration().operations
    except ConfigError as error:
        said = (problem.partition(": ") for problem in error.problems)
        return [*(Finding("error", where, what, "Correct it in the code") for where, _, what in said), *findings]
    return [finding for finding in findings if not (operations and finding.where == "operations")]


@app.command(epilog=examples("idem config show", "idem config show --json"))
def show(config: Config = None, as_data: Json = False) -> None:
    """Print every setting as it will be used, defaults included. Secrets are only named, never shown."""
    found = opening.configuration(config)
    data: dict[str, Any] = {
        "file": str(found.path),
        **found.settings.model_dump(mode="json"),
        "providers": {name: each.model_dump(mode="json") for name, each in found.provider_settings.items()},
        "operations": {name: each.model_dump(mode="json") for name, each in found.operation_settings.items()},
    }
    if as_data:
        as_json(data)
        return
    table(["setting", "value"], list(_flat(data)), empty="")


def _flat(data: Any, path: tuple[str, ...] = ()) -> list[list[object]]:
    if isinstance(data, dict) and data:
        return [row for name, value in data.items() for row in _flat(value, (*path, str(name)))]
    return [[".".join(path), data]]
