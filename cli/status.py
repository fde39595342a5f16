"""`idem status`: how old everything unsettled is, once or repeatedly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idem.cli.base import opening
from idem.cli.base.failures import explain
from idem.cli.base.options import Config, Json, examples
from idem.cli.base.output import age, as_json, fields, labelled, table, terminal, text
from idem.outbox.database.installation import NOT_INSTALLED
from idem.outbox.values.errors import ConfigError, OperatorRefused
from idem.outbox.values.plural import several

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from rich.console import RenderableType

EXAMPLES = examples(
    "idem status", "idem status --json", "idem status --watch", "idem status --watch --every 10s --json"
)

ANSWER = 10.0
"""Timeout of a query while watching, in seconds: a dead connection looks like a slow one."""


def status(
    config: Config = None,
    as_data: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C, also through outages.")] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="How often to refresh, e.g. 2s or 1m.")
    ] = "2s",
) -> None:
    """Show the oldest unsettled rows, the daemons' last heartbeats, and what is paused.

    With --watch it redraws a terminal; other output gets one block, or with --json one line, per refresh.
    """
    if not watch:
        asyncio.run(_once(config, as_data))
        return
    seconds = _duration(every)
    # Ctrl-C is the normal end.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(config, as_data, seconds))


def _duration(every: str) -> float:
    from idem.outbox.values import durations

    with contextlib.suppress(ValueError):
        if (seconds := durations.parse(every)) >= 0.1:
            return seconds
    raise typer.BadParameter(
        f"{every!r} is not a duration of 100ms or more. Write e.g. 2s, 500ms or 1m", param_hint="--every"
    )


async def _once(config: Path | None, as_data: bool) -> None:
    async with opening.connected(config) as connection:
        found = await _read(connection)
    if as_data:
        as_json(found)
    else:
        _print(found)


async def _read(connection: AsyncConnection[Any]) -> dict[str, Any]:
    from idem.cli.doctor.schema import REVISION
    from idem.outbox.operator.ages import ages

    found = await ages(connection)
    if found["installation"] is None:
        raise OperatorRefused(NOT_INSTALLED)
    cursor = await connection.execute(REVISION)
    row = await cursor.fetchone()
    return {**found, "schema": {"revision": row[0] if row else None, "needed": _needed()}}


@functools.cache
def _needed() -> str:
    # Alembic loads all revisions for it, and `--watch` reads once a second.
    from idem.migrations import runner

    return runner.head()


def _schema(found: dict[str, Any]) -> str:
    revision, needed = found["schema"]["revision"], found["schema"]["needed"]
    wrong = f", but this program needs {needed}: see `idem doctor`"
    return f"{revision or 'none'}{'' if revision == needed else wrong}"


async def _watch(config: Path | None, as_data: bool, every: float) -> None:
    opening.address(config)
    with _screen(as_data) as show:
        async for found in _views(config):
            show(found)
            await asyncio.sleep(every)


async def _views(config: Path | None) -> AsyncIterator[dict[str, Any]]:
    """Read the status repeatedly and reconnect after an outage; a failed read has an `error`.

    Before the first success an error such as a missing role or schema ends it; later it may be a restart or a restore.
    """
    from idem.cli.base.time_limit import statement_timeout

    seen = False
    while True:
        try:
            async with opening.connected(config) as connection:
                while True:
                    async with statement_timeout(connection, ANSWER):
                        found = await _read(connection)
                    seen = True
                    yield found
        except ConfigError:
            raise
        except Exception as failed:
            explained = explain(failed)
            if explained is None or (not seen and not await _is_away(failed, config)):
                raise
            yield {"at": datetime.now(UTC), "error": explained[0]}


async def _is_away(failed: Exception, config: Path | None) -> bool:
    from idem.cli.base import start_checks

    if not start_checks.passes(failed):
        return False
    return getattr(failed, "sqlstate", None) is not None or not await start_checks.takes_connections(
        opening.address(config)
    )


@contextlib.contextmanager
def _screen(as_data: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    if as_data:
        yield _line
    elif not sys.stdout.isatty():
        yield _block
    else:
        from rich.console import Console
        from rich.live import Live

        # The last picture stays on the screen, so that it can be copied.
        with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda found: live.update(_picture(found), refresh=True)


def _line(found: dict[str, Any]) -> None:
    as_json(found, indent=None)
    sys.stdout.flush()


def _block(found: dict[str, Any]) -> None:
    if "error" in found:
        typer.echo(_away(found))
    else:
        _print(found)
    typer.echo("-" * 72)
    sys.stdout.flush()


def _away(found: dict[str, Any]) -> str:
    return f"{text(found['at'])}  {text(found['error'])}; trying again"


def _picture(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from idem.cli.base.tables import lines

    if "error" in found:
        return Text(_away(found), style="bold red")
    installation = found["installation"]
    parts: list[RenderableType] = [
        Text(f"environment {installation['environment']}, database {installation['database']}, "
            f"schema {_schema(found)}, {text(installation['now'])}   (Ctrl-C exits)")
    ]  # fmt: skip
    for columns, rows, empty in _tables(found):
        parts.append(Text(""))
        shown = lines(columns, rows, terminal() or 120) if rows else [empty]
        parts += [Text(line, style="bold" if number == 0 and rows else "") for number, line in enumerate(shown)]
    if commands := next_commands(found):
        parts += [Text(""), Text("next  " + "; ".join(commands))]
    return Group(*parts)


def _print(found: dict[str, Any]) -> None:
    installation = found["installation"]
    shown = [(name, installation[name]) for name in ("environment", "database", "now")]
    fields([*shown, ("schema", _schema(found))])
    for columns, rows, empty in _tables(found):
        typer.echo()
        table(columns, rows, empty=empty)
    if commands := next_commands(found):
        typer.echo()
        labelled("next  ", "; ".join(commands))


def _tables(found: dict[str, Any]) -> Iterator[tuple[list[str], list[list[object]], str]]:
    rows: list[list[object]] = [
        [
            row["status"] + (" (paused)" if row["paused"] else ""), f"{row['provider']}/{row['account']}", row["rows"],
            age(row["oldest"]), age(row["overdue"]), age(row["replay_window_left"]),
        ]
        for row in found["outbox"]
    ]  # fmt: skip
    rows += [
        ["stored proofs", f"{row['provider']}/{row['account']}", row["rows"], age(row["oldest"]), "-", "-"]
        for row in found["proofs"]
    ]
    yield ["outbox", "lane", "rows", "oldest", "overdue", "replay window left"], rows, "nothing is open"
    if found["lanes"]:
        yield (
            ["lane", "succeeded a minute", "breaker"],
            [
                [f"{row['provider']}/{row['account']}", f"{row['done_per_minute']:.1f}", _breaker(row)]
                for row in found["lanes"]
            ],
            "",
        )
    yield (
        ["open dead letters", "lane", "rows", "oldest"],
        [
            [row["reason"], f"{row['provider']}/{row['account'] or '-'}" if row["provider"] else None, row["rows"],
             age(row["oldest"])]
            for row in found["dead_letters"]
        ],
        "no open dead letters",
    )  # fmt: skip
    yield (
        ["daemon", "life", "last heartbeat", "last pass", "host", "pid"],
        [[d["kind"], d["life"], age(d["seen"]), age(d["passed"]), d["host"], d["pid"]] for d in found["daemons"]],
        "no daemon has ever run here: `idem run` starts all of them, `idem worker run` (sweeper, reconciler) one",
    )
    if found["paused"]:
        yield (
            ["paused", "account", "what", "since", "by", "reason"],
            [
                [p["provider"], p["account"] or "all", p["what"], age(p["age"]), p["paused_by"], p["reason"]]
                for p in found["paused"]
            ],
            "",
        )


def _breaker(lane: dict[str, Any]) -> str:
    return f"open in {several(lane['breakers_open'], 'worker')}" if lane["breakers_open"] else "closed"


def next_commands(found: dict[str, Any]) -> list[str]:
    """The commands to run next, the most urgent first; empty if nothing needs a person."""
    commands: list[str] = []
    if not any(each["kind"] == "worker" and each["life"] == "alive" for each in found["daemons"]) and found["outbox"]:
        commands.append("idem run, or idem worker run alone (no worker is alive)")
    if any(lane["breakers_open"] for lane in found["lanes"]):
        commands.append("idem doctor (a breaker is open)")
    if found["dead_letters"]:
        held = any(row["status"] == "held" for row in found["outbox"])
        commands.append("idem dlq list" + (" (held rows need a decision)" if held else ""))
    if any(row["status"] == "approval" for row in found["outbox"]):
        commands.append("idem intents list --status approval (they wait for a person)")
    if any(row["status"] == "unknown" for row in found["outbox"]):
        commands.append("idem unknowns list")
    if found["order"]["held"]:
        commands.append("idem intents blocked (an ordering key is held)")
    commands += [f"idem resume {name} --reason ..." for name in sorted({each["provider"] for each in found["paused"]})]
    return commands
