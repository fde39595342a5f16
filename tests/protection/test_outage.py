"""A long outage in short: nothing is lost, given up, sent twice or sent too late, and the alarm comes in time."""

from pathlib import Path

import pytest
from protection.outage import Times, outage


@pytest.mark.timeout(300)
async def test_an_outage_across_the_end_of_the_replay_window(db_url: str, tmp_path: Path) -> None:
    result = await outage(tmp_path, db_url, Times(40.0, retention=480.0))
    assert result.completed == result.intents == result.effects
    assert (result.letters, result.redrives, result.late_sends) == ({}, 0, 0)
    assert result.window_ended is not None
    assert result.alarm_metric is not None and result.alarm_metric < result.window_ended
    assert result.alarm_doctor is not None
    # The bar is 10 %; here is somebody else's machine.
    assert result.during > result.before / 2
