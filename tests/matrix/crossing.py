"""Cells in which two contracts or two daemons meet."""

from matrix import cells
from matrix.variants import PLAIN

TO_THE_END = (7, 100, 300, 600, 1200, 1000, 230, 80, 60, 300, 400, 400, 700, 700)
"""Seconds of steps: three of them lie within the margin before the end of the retention."""


CROSSING = tuple(cell for replay in ("stored", "current") for cell in cells.crossing(PLAIN[replay]))
