"""What a bench found, as JSON and as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import typer

from idem.cli.base.output import table
from idem.cli.bench.measured import Cost
from idem.cli.bench.run import BenchResult

TITLES: Final = {
    "accept": "accept",
    "floor_accept": "accept: floor",
    "drain": "drain",
    "floor_drain": "drain: floor",
    "http": "HTTP",
    "tls": "TLS",
}
ELSEWHERE: Final = "not on this machine"


def as_data(result: BenchResult) -> dict[str, Any]:
    """All of it. `results`: by workload, as `Cost`; `ratios`: idem's number divided by the floor's."""
    settings = result.settings
    return {
        "settings": {
            "intents": settings.intents,
            "calls": settings.calls,
            "connections": settings.connections,
            "slots": settings.slots,
            "latency_ms": settings.latency * 1e3,
            "processes": settings.processes,
            "repeat": settings.repeat,
        },
        "about": result.about,
        "load": list(result.load),
        "postgresql_here": result.here,
        "results": {name: cost.numbers() for name, cost in result.costs.items()},
        "latency_ms": result.latency.numbers() if result.latency is not None else None,
        "ratios": ratios(result.costs),
    }


def ratios(costs: Mapping[str, Cost]) -> dict[str, dict[str, float | None]]:
    """Of accept and drain: idem's number divided by the floor's."""
    found = {}
    for name in ("accept", "drain"):
        ours, floor = costs.get(name), costs.get(f"floor_{name}")
        if ours is not None and floor is not None:
            found[name] = {
                "rate": _ratio(ours.rate, floor.rate),
                "postgresql_cpu": _ratio(ours.postgresql_cpu, floor.postgresql_cpu),
                "wal": _ratio(ours.wal, floor.wal),
            }
    return found


def _ratio(ours: float | None, floor: float | None) -> float | None:
    return ours / floor if ours is not None and floor else None


def show(result: BenchResult) -> None:
    """Print it for people."""
    columns = [
        "by the intent", "a second", "CPU µs", "PostgreSQL µs", "statements", "commits", "WAL", "dead rows", "disk",
        "RSS MB",
    ]  # fmt: skip
    rows = [[TITLES[name], *_cells(result.costs[name], here=result.here)] for name in TITLES if name in result.costs]
    if rows:
        table(columns, rows, empty="", drop=["RSS MB", "disk", "dead rows", "statements"])
    for line in _words(result):
        typer.echo(line)


def _cells(cost: Cost, *, here: bool) -> list[object]:
    return [
        _number(cost.rate),
        _number(cost.cpu),
        _number(cost.postgresql_cpu) if here else ELSEWHERE,
        _number(cost.statements, digits=2),
        _number(cost.commits, digits=2),
        _number(cost.wal),
        _number(cost.dead, digits=2),
        _number(cost.disk),
        _number(None if cost.rss is None else cost.rss / 1e6),
    ]


def _number(value: float | None, *, digits: int = 0) -> str | None:
    return None if value is None else f"{value:,.{digits}f}"


def _words(result: BenchResult) -> list[str]:
    found, about = [""] if result.costs else [], result.about
    for name, compared in ratios(result.costs).items():
        cpu = compared["postgresql_cpu"]
        found.append(
            f"{name}: {compared['rate']:.2f} of the floor's rate"
            + (f", {cpu:.1f} times its PostgreSQL CPU" if cpu is not None else "")
        )
    if (late := result.latency) is not None:
        found.append(
            f"from the commit to the start of the call {late.pick_up_p50:.1f} ms (99 of 100 within "
            f"{late.pick_up_p99:.1f} ms), to its settling {late.settled_p50:.1f} ms ({late.settled_p99:.1f} ms)"
        )
    load = f"load {result.load[0]:.1f} to {result.load[1]:.1f}"
    found.append(
        f"idem {about['idem']}, PostgreSQL {about['postgresql']} (fsync {about['fsync']}, synchronous_commit "
        f"{about['synchronous_commit']}), {about['cores']} cores here, {load}"
    )
    if result.costs:
        found.append(
            "PostgreSQL's CPU and WAL are the whole server's; the floor is the same rows by bare statements"
            if result.here
            else "WAL is the whole server's; the floor is the same rows by bare statements"
        )
        if all(cost.statements is None for cost in result.costs.values()):
            found.append("statements are not counted: this role sees no pg_stat_statements in its own database")
    return found
