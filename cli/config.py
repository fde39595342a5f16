"""`idem config`: check and show idem.toml and the environment variables."""

from dataclasses import asdict
from typing import Any

import typer

from idem.cli.base import opening
from idem.cli.base.application import App
from idem.cli.base.failures import USAGE
from idem.cli.base.options import Config, Json, examples, group
from idem.cli.base.output import as_json, table

app = group("The configuration: idem.toml and IDEM_… variables.", "idem config check", "idem config show --json")


@app.command(epilog=examples("idem config check", "idem config check -c production.toml --json"))
def check(config: Config = None, app: App = None, as_data: Json = False) -> None:
    """Check everything that needs no connection; exit code 2 if there is a mistake."""
    findings = opening.findings(config)
    wrong = any(finding.level == "error" for finding in findings)
    if as_data:
        as_json({"ok": not wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        table(
            ["level", "where", "line", "what", "what to do"],
            [[f.level, f.where, f.line, f.what, f.do] for f in findings],
            empty="the configuration is in order",
        )
    if wrong:
        raise typer.Exit(USAGE)


@app.command(epilog=examples("idem config show", "idem config show --json"))
def show(config: Config = None, app: App = None, as_data: Json = False) -> None:
    """Print every setting that idem will use, with defaults. Secrets are named but never shown."""
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
    if isinstance(data, list) and data and all(isinstance(each, dict) for each in data):
        return [row for place, each in enumerate(data) for row in _flat(each, (*path, str(place)))]
    return [[".".join(path), data]]
