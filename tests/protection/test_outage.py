"""A long outage in short: nothing is lost, given up, sent twice or sent too late, and the alarm comes in time."""

import sys
from pathlib import Path

import pytest
from protection.outage import Times, outage


@pytest.mark.campaign
@pytest.mark.timeout(300)
async def test_an_outage_across_the_end_of_the_replay_window(db_url: str, tmp_path: Path) -> None:
    result = await outage(tmp_path, db_url, Times(40.0, retention=480.0))
    assert result.completed == result.intents == result.effects
    # A slow machine may sweep a call before it left: its absence is proven after the window, and it is redriven.
    assert (result.letters, result.late_sends) == ({}, 0)
    assert result.window_ended is not None
    assert result.alarm_metric is not None and result.alarm_metric < result.window_ended
    assert result.alarm_doctor is not None
    sys.stderr.write(
        f"\nthe other provider: {result.during:.1f} calls a second in the outage, {result.before:.1f} before\n"
    )
