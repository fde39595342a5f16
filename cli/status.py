"""`idem status`: how old everything unsettled is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from idem.cli import opening
from idem.cli.options import Config, Json, examples
from idem.cli.output import age, as_json, fields, table
from idem.outbox.errors import Refusal

EXAMPLES = examples("idem status", "idem status --json", "idem status --watch 5")


def status(
    config: Config = None,
    as_data: Json = False,
    watch: Annotated[float | None, typer.Option(min=0.5, help="Show it again every so many seconds.")] = None,
) -> None:
    """Show the oldest of everything unsettled, the daemons' last signs of life, and what is paused."""
    asyncio.run(_status(config, as_data, watch))


async def _status(config: Path | None, as_data: bool, watch: float | None) -> None:
    from idem.outbox.ages import ages

    async with opening.connected(config) as connection:
        while True:
            found = await ages(connection)
            if found["installation"] is None:
                raise Refusal("this database has no idem installation: run `idem db upgrade`")
            if as_data:
                as_json(found)
            else:
                _show(found)
            if watch is None:
                return
            await asyncio.sleep(watch)
            typer.echo()


def _show(found: dict[str, Any]) -> None:
    installation = found["installation"]
    fields([(name, installation[name]) for name in ("environment", "database", "now")])
    typer.echo()
    rows: list[list[object]] = [
        [
            row["status"] + (" (paused)" if row["paused"] else ""),
            row["rows"],
            age(row["oldest"]),
            # What is at rest is due for nobody.
            age(None if row["status"] == "held" else row["overdue"]),
            age(row["replay_window_left"]),
        ]
        for row in found["outbox"]
    ]
    if found["proofs"]["rows"]:
        rows.append(["stored proofs", found["proofs"]["rows"], age(found["proofs"]["oldest"]), "-", "-"])
    table(["outbox", "rows", "oldest", "overdue", "replay window left"], rows, empty="nothing is open")
    typer.echo()
    table(
        ["open dead letters", "rows", "oldest"],
        [[row["reason"], row["rows"], age(row["oldest"])] for row in found["dead_letters"]],
        empty="no open dead letters",
    )
    typer.echo()
    table(
        ["daemon", "life", "last sign", "last pass", "host", "pid"],
        [[d["kind"], d["life"], age(d["seen"]), age(d["passed"]), d["host"], d["pid"]] for d in found["daemons"]],
        empty="no daemon was ever here: start `idem worker run`, `idem sweeper run`, `idem reconciler run`",
    )
    if found["paused"]:
        typer.echo()
        table(
            ["paused", "account", "since", "by", "reason"],
            [[p["provider"], p["account"], age(p["age"]), p["paused_by"], p["reason"]] for p in found["paused"]],
            empty="",
        )
