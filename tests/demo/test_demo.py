"""Whole demos, small ones: everything right is proven, each broken rule is caught, and no process is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_waiting import until_it_holds

from idem.cli.demo import DemoSettings, Sabotage, run

pytestmark = pytest.mark.timeout(300)

SMALL = DemoSettings(payments=40, kills=4, seed=1, json=True)
CALM = replace(SMALL, payments=24, kills=1, workers=1, faults=0.0, seconds=2.0)
"""Only what the sabotage needs goes wrong."""


def play(capsys: pytest.CaptureFixture[str], settings: DemoSettings) -> tuple[int, dict[str, Any]]:
    code = run(settings)
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def there(superuser_url: str, tmp_path: Path) -> dict[str, Any]:
    """Where the demos of these tests live."""
    return {"database_url": superuser_url, "home": tmp_path}


def test_every_promise_holds(capsys: pytest.CaptureFixture[str], there: dict[str, Any]) -> None:
    code, said = play(capsys, replace(SMALL, **there))
    proof = said["proof"]
    assert (code, proof["findings"]) == (0, [])
    assert said["kills"] == 4
    assert proof["effects_made"] == proof["effects_wanted"] > 30
    assert proof["letters_expected"] == 3
    flows = proof["flows"]
    assert flows["flows"] == flows["succeeded"] + flows["refused"] + flows["partial"] > 5
    assert (flows["undone"] > 0, flows["partial"]) == (True, 1)
    assert flows["effects"]["receipt"] == flows["succeeded"]
    assert sum(how["count"] for how in proof["settled"].values()) > 0
    assert not list(there["home"].glob("runs/*"))


def test_without_flows_the_demo_has_payments_of_one_call(
    capsys: pytest.CaptureFixture[str], there: dict[str, Any]
) -> None:
    code, said = play(capsys, replace(CALM, flows=0.0, **there))
    assert (code, said["proof"]["findings"], said["proof"]["flows"]["flows"]) == (0, [], 0)
    assert said["proof"]["letters_expected"] == 2


@pytest.mark.parametrize("sabotage", list(Sabotage))
def test_a_broken_rule_is_caught(capsys: pytest.CaptureFixture[str], there: dict[str, Any], sabotage: Sabotage) -> None:
    code, said = play(capsys, replace(CALM, sabotage=sabotage, **there))
    named = {finding["intent"] for finding in said["proof"]["findings"]}
    assert (code, named) == (1, {said["victim"]["intent"]})
    records = {path.name for path in Path(said["folder"]).iterdir()}
    assert records >= {"clients.jsonl", "bank.jsonl", "idem.toml", "proof.json"}


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left(tmp_path_factory: pytest.TempPathFactory, number: signal.Signals) -> None:
    home = tmp_path_factory.getbasetemp() / "demo"
    home.mkdir(exist_ok=True)
    with command(home, "--payments", "40", "--kills", "0", "--seed", "1") as demo:
        until_it_holds(lambda: len(processes_of(demo.pid, home)) >= 6 and daemons_are_up(home), 60)
        demo.send_signal(number)
        assert demo.wait(30) == {signal.SIGKILL: -signal.SIGKILL}.get(number, 130)
        until_it_holds(lambda: not processes_of(demo.pid, home), 20)


@contextmanager
def command(home: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The demo as a command, in a folder of its own."""
    with (home / "output").open("wb") as output:
        # A shell that runs tests in the background has them ignore Ctrl-C, and their children too.
        demo = subprocess.Popen(
            [sys.executable, "-m", "idem.cli.main", "demo", *arguments], cwd=home, stdout=output, stderr=output,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        try:
            yield demo
        finally:
            demo.kill()
            demo.wait()


def processes_of(demo: int, home: Path) -> dict[int, str]:
    """The processes that belong to a demo or to the server in its folder, but not the demo itself."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"parent_watch {demo} " in text or str(home) in text:
            found[int(place.name)] = text
    found.pop(demo, None)
    found.pop(os.getpid(), None)
    return found


def daemons_are_up(home: Path) -> bool:
    logs = list(home.glob(".idem/demo/runs/*/worker-1.log"))
    return any(b'"call"' in log.read_bytes() for log in logs)
