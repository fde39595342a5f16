"""The folder of a group's metrics may be full, read-only or spoiled: metrics may be missing, and nothing else is."""

import asyncio
import os
import random
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fix_desk import Desk
from fix_processes import started
from fix_waiting import until
from prometheus_client import mmap_dict, values
from prometheus_client.parser import text_string_to_metric_families

from idem.outbox.observe import metric_files, metrics
from idem.outbox.observe.metric_files import MetricFile

COUNT = """
import resource, sys
from idem.outbox.observe import metrics, telemetry
telemetry.claimed("p", "a", 2)
print("ready", flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
for number in range(300):
    telemetry.webhook_foreign("p", f"full-{number}")
telemetry.claimed("p", "a", 1)
print("full", flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
telemetry.claimed("p", "a", 1)
print("room", flush=True)
sys.stdin.readline()
"""
"""A file size limit refuses a write as a full disk does; Python ignores SIGXFSZ, and a mapped file would be SIGBUS."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a group's metrics; this process reads what the others count."""
    place = tmp_path / "metrics"
    place.mkdir()
    monkeypatch.setenv(metrics.DIRECTORY, str(place))
    return place


def counted(name: str) -> float:
    text = metrics.exposition()[0].decode()
    return sum(s.value for f in text_string_to_metric_families(text) for s in f.samples if s.name == name)


@pytest.mark.quick
@pytest.mark.process
def test_ib_183_what_cannot_be_written_is_written_later(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COUNT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for said, claimed, foreign in (("ready", 2, 0), ("full", 2, 0), ("room", 4, 300)):
            assert child.stdout.readline().strip() == said
            assert counted("idem_claimed_total") == claimed
            assert counted("idem_webhooks_foreign_total") == foreign
            child.stdin.write("\n")
    assert child.returncode == 0


@pytest.mark.quick
@pytest.mark.process
@pytest.mark.parametrize("spoiled", [lambda place: place.rmdir(), lambda place: place.chmod(0o500)])
def test_ib_183_a_process_counts_without_its_folder(folder: Path, spoiled: Callable[[Path], None]) -> None:
    """It is not there, or nothing may be written in it (root may, all the same)."""
    spoiled(folder)
    done = subprocess.run([sys.executable, "-c", COUNT], input="\n\n\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def written(file: Path, *, entries: int = 3) -> bytes:
    library = mmap_dict.MmapedDict(str(file))
    for number in range(entries):
        key = mmap_dict.mmap_key("idem_claimed", "idem_claimed_total", ["account"], [f"a{number}"], "Rows.")
        library.write_value(key, 1.0, 0.0)
    library.close()
    return file.read_bytes()


def spoiling(whole: bytes) -> dict[str, bytes]:
    """Every way in which a file may be broken that comes to mind, and some that do not."""
    chance = random.Random(183)
    head = struct.pack("i", 4000) + bytes(4)
    found = {
        "empty": b"",
        "cut in its head": whole[:3],
        "cut": whole[:100],
        "not begun": bytes(65536),
        "noise": chance.randbytes(5000),
        "more used than there is": struct.pack("i", 1 << 30) + whole[4:],
        "a length below zero": head + struct.pack("i", -12) + bytes(4000),
        "a length that leads nowhere": head + struct.pack("i", 1 << 29) + bytes(4000),
        "no JSON": whole.replace(b'["idem', b"[[idem"),
        "another JSON": whole.replace(b'"idem_claimed_total"', b"1234567890123456789 "),
        "no UTF-8": whole.replace(b"Rows.", b"Row\xff\xfe"),
    }
    for number in range(int(os.environ.get("IDEM_TEST_SPOILED", "30"))):
        one = bytearray(whole[: whole.index(bytes(64), 16) + 16])
        for _ in range(chance.randint(1, 8)):
            one[chance.randrange(len(one))] = chance.randrange(256)
        found[f"chance {number}"] = bytes(one)
    return found


def test_ib_182_a_file_that_cannot_be_read_is_left_out(folder: Path) -> None:
    whole = written(folder / "counter_1.db")
    for how, content in spoiling(whole).items():
        for name in ("counter_999999.db", "gauge_livesum_999999.db", "histogram_999999.db", "counter.db", "gauge_1.db"):
            place = folder / name
            place.write_bytes(content)
            text, _ = metrics.exposition()
            assert text.count(b'idem_claimed_total{account="a') >= 3, (how, name)
            place.unlink()
    folder.joinpath("counter_999999.db").write_bytes(b"no metrics")
    metrics.exposition()
    folder.joinpath("counter_888888.db").mkdir()
    metrics.exposition()
    assert metrics.unreadable == ["counter_888888.db", "counter_999999.db"]


def test_ib_182_what_a_killed_process_has_left_spoiled_is_removed(folder: Path) -> None:
    whole = written(folder / "counter_11.db")
    for how, content in spoiling(whole).items():
        folder.joinpath("counter_12.db").write_bytes(content)
        metrics.forget(12)
        assert not folder.joinpath("counter_12.db").exists(), how
        folder.joinpath("counter_0.db").unlink(missing_ok=True)
    folder.joinpath("counter_0.db").write_bytes(b"no metrics")
    metrics.forget(11)
    assert counted("idem_claimed_total") == 3
    assert not folder.joinpath("counter_11.db").exists()


def test_ib_183_what_there_is_no_room_to_add_stays_and_is_added_later(folder: Path) -> None:
    written(folder / "counter_11.db")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            metrics.forget(11)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert counted("idem_claimed_total") == 3
    metrics.forget(12)
    assert counted("idem_claimed_total") == 3
    assert [each.name for each in folder.glob("*.db")] == ["counter_0.db"]


def test_the_library_keeps_its_values_in_our_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the form that its own collector reads, so that an application's other metrics are still read by it."""
    monkeypatch.setattr(values, "MmapedDict", MetricFile)
    value = values.MultiProcessValue(lambda: 77)(
        "gauge", "g", "g", ["a"], ["é"], "Help.", multiprocess_mode="mostrecent"
    )
    value.set(5.0, timestamp=1.0)
    value.set(7.0, timestamp=2.0)
    ((key, read, at, _),) = mmap_dict.MmapedDict.read_all_values_from_file(str(folder / "gauge_mostrecent_77.db"))
    assert (read, key) == (7.0, mmap_dict.mmap_key("g", "g", ["a"], ["é"], "Help."))
    assert at > 2.0, "the boot-time clock: a wall clock that steps back would have an old word outlive the new"
    again = MetricFile(str(folder / "gauge_mostrecent_77.db"))
    assert again.read_value(key)[0] == 7.0
    again.write_value("another", 1.0, 0.0)
    assert [entry[:2] for entry in metric_files.read(folder / "gauge_mostrecent_77.db")] == [
        (key, 7.0), ("another", 1.0)
    ]  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("how", ["full", "gone", "a file"])
async def test_ib_183_a_group_lives_without_its_folder(
    desk: Desk, tmp_path: Path, unused_tcp_port: int, how: str
) -> None:
    """`idem run`: `full` from before its start (no file may grow), or its temporary folder is none."""
    place = tmp_path / "tmp"
    place.mkdir()
    environment = desk.environment | {"TMPDIR": str(place)}
    log = tmp_path.joinpath("log").open("wb")

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    async def beating() -> bool:
        kinds = await desk.spine.all(
            "SELECT DISTINCT kind FROM idem.daemons WHERE last_pass_at IS NOT NULL OR kind='api'"
        )
        return {row["kind"] for row in kinds} >= {"sweeper", "reconciler", "api"}

    async with started(
        "run", "--port", str(unused_tcp_port), "--log", "json", env=environment,
        stderr=asyncio.subprocess.PIPE if how == "full" else log, prepare=full if how == "full" else lambda: None,
    ) as process:  # fmt: skip
        await until(beating, "a pass of each daemon")
        if how != "full":
            (made,) = place.glob("idem-metrics-*")
            for file in made.iterdir():
                file.unlink()
            made.rmdir()
            if how == "a file":
                made.write_bytes(b"")
        intent = await desk.pending("k1")

        async def called() -> bool:
            row = await desk.spine.row_if_any(intent)
            return row is None or row["attempt"] > 0

        await until(called, "a call")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    log.close()
    rows = await desk.spine.all("SELECT count(*) AS n FROM idem.daemons")
    assert rows[0]["n"] == 4, "none of them has ended and was started again"
