"""The bar against localstripe: 200 PaymentIntents, the line cut after 30 % of them, the worker killed five times.

pytest tests/stripe/measure_localstripe.py -s         # IDEM_TEST_INTENTS=200, IDEM_TEST_KILLS=5
"""

import os
import sys
from pathlib import Path

import pytest
from fix_localstripe import pay_through_a_bad_line

INTENTS, KILLS = int(os.environ.get("IDEM_TEST_INTENTS", "200")), int(os.environ.get("IDEM_TEST_KILLS", "5"))


@pytest.mark.timeout(900)
async def test_the_bar(db_url: str, tmp_path: Path) -> None:
    figures = await pay_through_a_bad_line(db_url, tmp_path, intents=INTENTS, kills=KILLS)
    sys.stderr.write("\n" + "\n".join(figures.lines()) + "\n")
    assert (figures.payments, figures.twice, figures.never) == (INTENTS, 0, 0)
    assert figures.completed >= 0.99 * INTENTS
    assert figures.line.killed == KILLS
