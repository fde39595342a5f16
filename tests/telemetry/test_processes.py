"""Several processes and one exposition: what stops takes nothing with it that it counted, and leaves no series."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from fix_desk import Desk
from prometheus_client.parser import text_string_to_metric_families

from idem.outbox.observe import metrics

WORK = """
import signal, sys
from uuid import uuid4
from idem.outbox.observe import ages, metrics, telemetry
telemetry.set_up(json=True, level="error")
telemetry.claimed("p", "a", 2)
telemetry.called("p", "a", uuid4(), 1, "succeeded", 0.2)
telemetry.passed("worker", "claim", "p", "a")
telemetry.waiting(3)
ages.set_gauges(("p", "a"), ages.LaneAges({"pending": ages.Unsettled(int(sys.argv[1]), 1.0)}))
print("ready", flush=True)
if sys.argv[2:] == ["exposition"]:
    sys.stdout.buffer.write(metrics.exposition()[0])
elif sys.argv[2:] == ["stay"]:
    signal.pause()
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The environment of a group's processes; this process reads what they count."""
    monkeypatch.setenv(metrics.DIRECTORY, str(tmp_path / "metrics"))
    tmp_path.joinpath("metrics").mkdir()
    return dict(os.environ)


def start(group: Mapping[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", WORK, *arguments], env=group, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    return child


def end(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    child.send_signal(number)
    child.communicate(timeout=20)
    metrics.forget(child.pid)


def scraped() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, _ = metrics.exposition()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if family.type != "unknown" and not sample.name.endswith("_created")
    }


LANE = (("account", "a"), ("provider", "p"))
PENDING = ("idem_unsettled", (*LANE, ("what", "pending")))
WAITERS = ("idem_waiters", ())


@pytest.mark.process
def test_ib_162_fifty_restarts_add_no_series_and_no_files(group: Mapping[str, str], tmp_path: Path) -> None:
    first = start(group, "7", "stay")
    before = scraped()
    files = set(tmp_path.joinpath("metrics").iterdir())
    assert before["idem_claimed_total", LANE] == 2
    for number in range(50):
        child = start(group, str(number))
        child.communicate(timeout=20)
        metrics.forget(child.pid)
        if number == 0:
            files |= set(tmp_path.joinpath("metrics").iterdir())
    after = scraped()
    assert set(after) == set(before)
    assert (after["idem_claimed_total", LANE], after["idem_call_seconds_count", LANE]) == (2 * 51, 51)
    assert after[PENDING] == 49, "the newest word about what is unsettled, though its process has gone"
    assert after[WAITERS] == 3, "what the dead held is gone"
    assert set(tmp_path.joinpath("metrics").iterdir()) == files
    end(first, signal.SIGTERM)
    assert WAITERS not in scraped()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ib_164_counters_never_decrease_when_processes_stop(group: Mapping[str, str], number: signal.Signals) -> None:
    seen = scraped()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(10):
        running.append(start(group, "1", "stay"))
        if len(running) > 2:
            end(running.pop(0), number)
        now = scraped()
        for series, value in seen.items():
            if series[0].endswith(("_total", "_count", "_sum", "_bucket")):
                assert now[series] >= value, series
        seen = now
    for child in running:
        end(child, number)
    assert scraped()["idem_claimed_total", LANE] == 20


@pytest.mark.quick
@pytest.mark.process
def test_a_process_of_a_group_shows_the_whole_group(group: Mapping[str, str]) -> None:
    other = start(group, "1", "stay")
    one = start(group, "1", "exposition")
    assert one.stdout is not None
    text = one.stdout.read()
    one.communicate(timeout=20)
    assert b'idem_claimed_total{account="a",provider="p"} 4.0' in text
    assert b"# HELP idem_claimed_total Rows claimed." in text
    end(other, signal.SIGTERM)


@pytest.mark.process
async def test_real_daemons_of_a_group_add_up(desk: Desk, group: Mapping[str, str]) -> None:
    """IB-164, with daemons: each sweep is a process of its own, and all that they swept is told."""
    for number in range(3):
        await desk.live(f"k{number}")
        await desk.spine.advance(31)
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "idem.cli.main", "sweeper", "run", "--once", "--json",
            env={**group, **desk.environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(running.communicate(), 60)
        assert running.returncode == 0, (out, err)
        metrics.forget(running.pid)
        assert scraped()["idem_swept_total", ()] == number + 1
    moved = (("from_status", "claimed"), ("source", "sweeper"), ("to_status", "unknown"))
    assert scraped()["idem_transitions_total", moved] == 3
