"""Tables for a terminal of any width. No line is wider, and no id or word is cut.

Columns without a value are left out first. Then columns are added by importance while they fit, so that a wide column
that does not fit does not displace a narrow one. Texts wrap between words. Below `NARROW` columns each item is one
line, without columns.
"""

import textwrap
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from idem.cli.base.output import text

NARROW: Final = 80
GAP: Final = "  "
PROSE: Final = 24
"""A column wider than this is text that may wrap; this is then its least width."""


def lines(
    columns: Sequence[str], rows: Sequence[Sequence[object]], width: int, *, drop: Sequence[str] = ()
) -> list[str]:
    """The lines of a table. `drop`: columns to leave out, the least important first; then the others from the right.

    The first column always stays.
    """
    short = _short(rows)
    cells = [[_cell(cell, short) for cell in row] for row in rows]
    shown = [i for i in range(len(columns)) if i == 0 or any(row[i] != "-" for row in cells)]
    rank = [*(columns.index(name) for name in drop if name in columns)]
    rank += [i for i in reversed(range(1, len(columns))) if i not in rank]
    if width < NARROW:
        return _items(cells, shown, rank, width)
    left = shown[:1]
    for wanted in reversed(rank):
        wider = [i for i in shown if i in left or i == wanted]
        if _fit(columns, cells, wider, width) is not None:
            left = wider
    widths = _fit(columns, cells, left, width)
    return _items(cells, shown, rank, width) if widths is None else _grid(columns, cells, left, widths, width)


def _short(rows: Sequence[Sequence[object]]) -> dict[UUID, str]:
    """The shortest prefixes, ending at a dash, that distinguish the ids of a table."""
    ids = {cell for row in rows for cell in row if isinstance(cell, UUID)}
    for length in (13, 18, 23):
        named = {each: str(each)[:length] for each in ids}
        if len(set(named.values())) == len(ids):
            return named
    return {each: str(each) for each in ids}


def _cell(cell: object, short: dict[UUID, str]) -> str:
    return short[cell] if isinstance(cell, UUID) else text(cell)


def _fit(columns: Sequence[str], cells: list[list[str]], shown: list[int], width: int) -> list[int] | None:
    """The widths of the columns, if the table fits: texts shrink, every other column has the width that it needs."""
    natural = [max(len(columns[i]), *(len(row[i]) for row in cells)) for i in shown]
    least = [max(len(columns[i]), *(_longest_word(row[i]) for row in cells)) for i in shown]
    room = width - len(GAP) * (len(shown) - 1)
    if sum(natural) <= room:
        return natural
    # Only a text of several words may wrap, and not to one word a line.
    wraps = [n > PROSE and small < n for n, small in zip(natural, least, strict=True)]
    fixed = sum(n for n, may in zip(natural, wraps, strict=True) if not may)
    floor = [max(small, PROSE) for small, may in zip(least, wraps, strict=True) if may]
    left = room - fixed
    if not floor or left < sum(floor):
        return None
    found = []
    texts = len(floor)
    for n, small, may in zip(natural, least, wraps, strict=True):
        if not may:
            found.append(n)
            continue
        texts -= 1
        others = sum(sorted(floor)[:texts])
        found.append(min(n, max(small, PROSE, left - others if texts == 0 else left // (texts + 1))))
        left -= found[-1]
    return found if sum(found) <= room else None


def _longest_word(cell: str) -> int:
    return max((len(word) for word in cell.split(" ")), default=0)


def _grid(columns: Sequence[str], cells: list[list[str]], shown: list[int], widths: list[int], width: int) -> list[str]:
    made = []
    for row in [list(columns), *cells]:
        parts = [_wrapped(row[i], size) for i, size in zip(shown, widths, strict=True)]
        for number in range(max(len(part) for part in parts)):
            line = GAP.join(
                (part[number] if number < len(part) else "").ljust(size)
                for part, size in zip(parts, widths, strict=True)
            )
            made.append(line.rstrip())
    return made


def _wrapped(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def _items(cells: list[list[str]], shown: list[int], rank: list[int], width: int) -> list[str]:
    """One line per item with the columns that fit, in order. A first text that is too long wraps."""
    made: list[str] = []
    for row in cells:
        kept = [shown[0]]
        for wanted in reversed(rank):
            wider = [i for i in shown if i in kept or (i == wanted and row[i] != "-")]
            if len(GAP.join(row[i] for i in wider)) <= width:
                kept = wider
        line = GAP.join(row[i] for i in kept)
        made += [line] if len(line) <= width else textwrap.wrap(line, max(width, 10), subsequent_indent="  ")
    return made


def paragraph(label: str, value: str, width: int) -> list[str]:
    """A label and its text, wrapped between words and aligned; a word longer than the line is broken."""
    room = max(width - len(label), 20)
    parts = textwrap.wrap(value, room, break_on_hyphens=False) or [""]
    return [(label if number == 0 else " " * len(label)) + part for number, part in enumerate(parts)]
