"""The numbers of a bench as a chart: an SVG of bars, made of the standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as Tree

from idem.cli.bench.measured import Cost
from idem.cli.bench.report import TITLES
from idem.cli.bench.run import BenchResult

WIDTH: Final = 760
LABEL: Final = 130
ROOM: Final = WIDTH - LABEL - 130
"""Where bars are; what is right of them is their numbers'."""
LINE: Final = 22
BAR: Final = 14
GAP: Final = 34
OWN: Final = "#3b6ea5"
SERVER: Final = "#d08a2e"
BARE: Final = "#9a9a9a"


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a panel: parts that lie behind each other, each with its colour."""

    label: str
    parts: Sequence[tuple[float, str]]
    text: str


def svg(result: BenchResult) -> str:
    """The chart."""
    panels = [
        ("Intents a second", [_rate(name, cost) for name, cost in _ordered(result)]),
        ("CPU an intent, µs: client or worker (blue), PostgreSQL (orange)", _cpu(result)),
        ("One at a time, ms from the commit: half of them, and 99 of 100", _latency(result)),
    ]
    drawn = [(title, bars) for title, bars in panels if bars]
    height = sum(GAP + LINE * len(bars) for _, bars in drawn) + GAP
    root = Tree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH} {height}",
            "width": str(WIDTH),
            "height": str(height),
            "font-family": "sans-serif",
            "font-size": "12",
        },
    )
    Tree.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    top = 0
    for title, bars in drawn:
        top += GAP
        _text(root, 10, top - 8, title, weight="bold")
        longest = max(sum(value for value, _ in bar.parts) for bar in bars) or 1.0
        for bar in bars:
            _draw(root, top, bar, longest)
            top += LINE
    about = result.about
    words = f"idem {about['idem']}, PostgreSQL {about['postgresql']}, {about['cores']} cores, load {result.load[1]:.1f}"
    _text(root, 10, top + 22, words)
    return Tree.tostring(root, encoding="unicode") + "\n"


def _ordered(result: BenchResult) -> list[tuple[str, Cost]]:
    return [(name, result.costs[name]) for name in TITLES if name in result.costs]


def _rate(name: str, cost: Cost) -> Bar:
    return Bar(TITLES[name], [(cost.rate, BARE if name.startswith("floor") else OWN)], f"{cost.rate:,.0f}")


def _cpu(result: BenchResult) -> list[Bar]:
    bars = []
    for name, cost in _ordered(result):
        if cost.cpu is None:
            continue
        server = cost.postgresql_cpu
        parts = [(cost.cpu, OWN), (max(0.0, server or 0.0), SERVER)]
        bars.append(Bar(TITLES[name], parts, f"{cost.cpu:,.0f}" + (f" + {server:,.0f}" if server is not None else "")))
    return bars


def _latency(result: BenchResult) -> list[Bar]:
    found = result.latency
    if found is None:
        return []
    pairs = (("call begins", found.pick_up_p50, found.pick_up_p99), ("settled", found.settled_p50, found.settled_p99))
    return [
        Bar(label, [(max(0.0, half), OWN), (max(0.0, most - half), BARE)], f"{half:.1f}, {most:.1f}")
        for label, half, most in pairs
    ]


def _draw(root: Tree.Element, top: int, bar: Bar, longest: float) -> None:
    _text(root, 10, top + BAR - 2, bar.label.strip())
    left = float(LABEL)
    for value, colour in bar.parts:
        width = ROOM * value / longest
        shape = {"x": f"{left:.1f}", "y": str(top), "width": f"{width:.1f}", "height": str(BAR), "fill": colour}
        Tree.SubElement(root, "rect", shape)
        left += width
    _text(root, left + 6, top + BAR - 2, bar.text)


def _text(root: Tree.Element, left: float, top: float, words: str, *, weight: str = "normal") -> None:
    Tree.SubElement(root, "text", {"x": f"{left:.1f}", "y": f"{top:.1f}", "font-weight": weight}).text = words
