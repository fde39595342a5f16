"""What a bench found, as JSON and as tables for people."""

from __future__ import annotations

from typing import Any, Final

from idem.cli.base.output import table
from idem.cli.bench.measured import Cost
from idem.cli.bench.run import BenchResult

TITLES: Final = {
    "accept": "accept",
    "floor_accept": "  its floor",
    "drain": "drain",
    "floor_drain": "  its floor",
    "http": "HTTP",
    "tls": "TLS",
}


def as_data(result: BenchResult) -> dict[str, Any]:
    """All of it. `ratios`: idem's PostgreSQL CPU to the floor's, and the floor's rate to idem's."""
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


def ratios(costs: dict[str, Cost]) -> dict[str, dict[str, float | None]]:
    """Of accept and drain: idem's number divided by the floor's."""
    found = {}
    for name in ("accept", "drain"):
        ours, floor = costs.get(name), costs.get(f"floor_{name}")
        if ours is not None and floor is not None:
            cpu = None
            if ours.postgresql_cpu is not None and floor.postgresql_cpu:
                cpu = ours.postgresql_cpu / floor.postgresql_cpu
            found[name] = {
                "rate": ours.rate / floor.rate,
                "postgresql_cpu": cpu,
                "wal": ours.wal / floor.wal if ours.wal is not None and floor.wal else None,
            }
    return found


def show(result: BenchResult) -> None:
    """Print tables."""
    columns = [
        "", "a second", "CPU", "PostgreSQL CPU", "statements", "commits", "WAL B", "dead rows", "disk B", "RSS MB",
    ]  # fmt: skip
    rows = [[TITLES[name], *_cells(result.costs[name], here=result.here)] for name in TITLES if name in result.costs]
    table(columns, rows, empty="nothing was measured")


def _cells(cost: Cost, *, here: bool) -> list[object]:
    server = _number(cost.postgresql_cpu, "µs") if here else "not on this machine"
    return [
        f"{cost.rate:,.0f}",
        _number(cost.cpu, "µs"),
        server,
        _number(cost.statements, digits=2),
        _number(cost.commits, digits=2),
        _number(cost.wal),
        _number(cost.dead, digits=2),
        _number(cost.disk),
        _number(None if cost.rss is None else cost.rss / 1e6),
    ]


def _number(value: float | None, unit: str = "", *, digits: int = 0) -> str | None:
    return None if value is None else f"{value:,.{digits}f}{f' {unit}' if unit else ''}"
