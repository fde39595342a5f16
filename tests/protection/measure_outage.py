"""An outage of ten minutes, and one that crosses the end of the replay window, beside a provider that works: figures.

pytest tests/protection/measure_outage.py -s          # IDEM_OUTAGE_FACTOR=20: all times are divided by it
"""

import os
import sys
from pathlib import Path

import pytest
from protection.outage import Times, outage

FACTOR = float(os.environ.get("IDEM_OUTAGE_FACTOR", "20"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("retention", [86400.0, 480.0], ids=["inside the window", "across its end"])
async def test_an_outage_costs_nothing_but_time(db_url: str, tmp_path: Path, retention: float) -> None:
    times = Times(FACTOR, retention=retention)
    result = await outage(tmp_path, db_url, times)
    sys.stderr.write("\n" + "\n".join(result.lines(times)) + "\n")
    assert (result.late_sends, result.letters) == (0, {})
    assert result.completed == result.intents == result.effects
