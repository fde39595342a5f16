"""The layer of each test, and which run holds it.

A test belongs to one layer. The rule finds it: a mark on the test or its file, else the folder or file (`PLACES`), else
the fixtures that it uses. `make test` runs `--suite quick`: all but the layers `process` and `campaign`, and of those
the tests marked `quick`. `make prove` runs `--suite prove`: the rest, and every test that has a larger budget there.
"""

import gc
import hashlib
import importlib
import importlib.util
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
KNOWN = TESTS.parent / "build" / "layers.json"
"""Which layers each file had when it was last collected, so that `-m unit` does not import the others."""
LAYERS = {
    "unit": "pure: no database, no socket, no process",
    "wire": "sockets between a client and a server of the test, no database",
    "database": "a database of the test's own",
    "races": "sessions or daemons that meet at one row",
    "process": "starts programs: a daemon, a command, pip, a server",
    "campaign": "a whole matrix, a fuzzer's full budget, a measurement, 100,000 rows",
}
LONG = ("process", "campaign")
WAITS = ("wire", "races", "process", "campaign")
"""Layers whose tests wait for most of their time."""
QUICK = "a test of the layers process or campaign that `make test` runs too"
SAMPLE = "of a matrix one in n belongs to its layer, and the others to campaign: every test, in another row each"
OWN = "its connections are new, and not handed on by another test: for plans, round trips and a clock that is moved"
FUZZ = "draws examples: a few in `make test`, many in `make prove` (set by the rule on tests of hypothesis)"

# Longest path first. What is not here: by the fixtures of each test.
PLACES = {
    "accept/test_table_of_locks.py": "process",
    "adopt/test_kills.py": "process",
    "approval/test_kills.py": "process",
    "bank/": "wire",
    "bench/": "process",
    "bench/test_peers.py": "unit",
    "calls/": "wire",
    "calls/test_breaker.py": "unit",
    "calls/test_credentials.py": "unit",
    "calls/test_lane_questions.py": "unit",
    "calls/test_large_answers.py": "unit",
    "changing/": "campaign",
    "conformance/test_cases.py": "process",
    "conformance/test_kit.py": "wire",
    "daemons/test_hung_passes.py": "process",
    "demo/test_demo.py": "process",
    "deploying/test_compose.py": "process",
    "doctor/test_status_watch.py": "process",
    "embedded/": "process",
    "events/test_logical_decoding.py": "process",
    "examples/": "process",
    "examples/test_public_names.py": "unit",
    "flows/test_local_kills.py": "process",
    "group/test_beside.py": "process",
    "group/test_run.py": "process",
    "group/test_single_process.py": "process",
    "group/test_stopping.py": "process",
    "group/test_unread_logs.py": "process",
    "group/test_up.py": "process",
    "group/test_workers.py": "process",
    "handlers/test_kills.py": "process",
    "importing/test_killed.py": "process",
    "inline/test_kills.py": "process",
    "install/": "process",
    "kills/": "process",
    "lines/test_start.py": "wire",
    "locked/test_frozen_process.py": "process",
    "matrix/": "campaign",
    "plugin/test_likeness.py": "wire",
    "plugin/test_plugin.py": "process",
    "producers/test_kills.py": "process",
    "provider_conformance/": "wire",
    "provider_conformance/test_page.py": "process",
    "recovery/test_killed_between_list_and_doubt.py": "process",
    "recovery/test_really_restored.py": "process",
    "serving/": "wire",
    "settling/test_stopped_process.py": "process",
    "spine/test_in_a_container.py": "process",
    "stripe/test_localstripe.py": "campaign",
    "surroundings/test_surroundings.py": "process",
    "tutorial/": "process",
    "webhooks/test_process.py": "process",
}
TOGETHER = {"schema/test_foreign_locks.py", "schema/test_listed_rows.py", "schema/test_plans.py"}
"""Files that share a backlog of 100,000 rows: it is made once a worker."""
FORBIDDEN = {
    "socket.connect": "wire (or database: then it takes the fixture `server`, also through another)",
    "socket.bind": "wire",
    "subprocess.Popen": "process",
    "os.fork": "process",
    "os.posix_spawn": "process",
}
"""What no unit test does, and the layer of a test that does."""

_pure: str | None = None


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if _pure is not None and event in FORBIDDEN:
        raise RuntimeError(
            f"{_pure} is a unit test, and {event} leaves the process: it belongs to the layer {FORBIDDEN[event]}. Name "
            "its folder or file in PLACES (tests/layers.py), or mark it: @pytest.mark.<layer>"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite", "which part of the suite runs")
    group.addoption("--suite", choices=("quick", "prove", "all"), default="all", help="make test, make prove or both")
    group.addoption("--slice", metavar="K/N", help="of the chosen tests the K-th of N parts, drawn by --seed")
    group.addoption("--seed", default="0", help="draws the parts of --slice; any text, e.g. the hash of a commit")


def pytest_configure(config: pytest.Config) -> None:
    if part := config.getoption("--slice"):
        number, _, parts = part.partition("/")
        if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
            raise pytest.UsageError(f"--slice {part}: write I/N with 1 <= I <= N, e.g. 3/8")
    for name, what in (*LAYERS.items(), ("quick", QUICK), ("fuzz", FUZZ), ("sample(n)", SAMPLE), ("own_sessions", OWN)):
        config.addinivalue_line("markers", f"{name}: {what}")
    if config.getoption("--suite") == "prove":
        os.environ.setdefault("IDEM_TEST_PROFILE", "prove")
    sys.addaudithook(_guard)


def pytest_report_header(config: pytest.Config) -> str:
    part = config.getoption("--slice")
    return f"suite: {config.getoption('--suite')}" + (
        f", slice {part} of seed {config.getoption('--seed')}" if part else ""
    )


def thorough() -> bool:
    """Whether this run has the full budgets: for a loop that tries a part in `make test` and all in `make prove`."""
    return os.environ.get("IDEM_TEST_PROFILE") == "prove"


def place(path: Path) -> str | None:
    """The layer of this file as `PLACES` has it."""
    relative = path.relative_to(TESTS).as_posix()
    found = [prefix for prefix in PLACES if relative.startswith(prefix)]
    return PLACES[max(found, key=len)] if found else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file is not even imported where it has nothing for this run: all in it is long, or of another layer."""
    if not collection_path.match("test_*.py"):
        return None
    wanted = config.getoption("markexpr")
    if wanted in LAYERS and wanted not in known().get(_state(collection_path), LAYERS):
        return True
    if config.getoption("--suite") != "quick":
        return None
    return True if place(collection_path) in LONG and "mark.quick" not in collection_path.read_text() else None


@cache
def known() -> dict[str, list[str]]:
    """What `KNOWN` says; nothing where there is no such file yet."""
    try:
        return dict(json.loads(KNOWN.read_text()))
    except (OSError, ValueError):
        return {}


@cache
def _state(path: Path) -> str:
    """The file as it is now, with all that decides its layer: its path, its content, the rule and the fixtures."""
    return f"{path.relative_to(TESTS)} {hashlib.sha256(_rule() + path.read_bytes()).hexdigest()[:16]}"


@cache
def _rule() -> bytes:
    shared = (*TESTS.glob("*.py"), *TESTS.rglob("conftest.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted({*shared}))).digest()


def remember(found: dict[Path, set[str]]) -> None:
    """Keep what was found for the next run."""
    fresh = known() | {_state(path): sorted(names) for path, names in found.items()}
    if fresh == known():
        return
    held = {_state(path) for path in TESTS.rglob("test_*.py")}
    KNOWN.parent.mkdir(exist_ok=True)
    written = KNOWN.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps({state: names for state, names in fresh.items() if state in held}))
    written.replace(KNOWN)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """The budget of hypothesis stands before a module that uses it is imported."""
    # Without hypothesis the core runs too: `make test-lowest` collects each folder that it names a file of.
    if b"hypothesis" in module_path.read_bytes() and importlib.util.find_spec("hypothesis"):
        importlib.import_module("fix_fuzz")


def layer(item: pytest.Item) -> str:
    """The one layer of this test."""
    for mark in item.iter_markers():
        if mark.name in LAYERS:
            return mark.name
    if found := place(item.path):
        return found
    if "server" in getattr(item, "fixturenames", ()):
        return "races" if "races" in item.path.relative_to(TESTS).as_posix() else "database"
    return "unit"


def _leave_out(items: list[pytest.Item]) -> None:
    """Of a matrix with the mark `sample`, what only `make prove` runs."""
    rows: Counter[tuple[Path, str]] = Counter()
    for item in items:
        if mark := item.get_closest_marker("sample"):
            # The tests of a class are the columns, and its subclasses the rows; else the parameters are the rows.
            name = item.name if getattr(item, "cls", None) else getattr(item, "originalname", item.name)
            if (rows[item.path, name] + zlib.crc32(name.encode())) % mark.args[0]:
                item.add_marker("campaign")
            rows[item.path, name] += 1


def _wanted(item: pytest.Item, suite: str) -> bool:
    long = any(item.get_closest_marker(name) for name in LONG) and not item.get_closest_marker("quick")
    return (
        suite == "all"
        or long == (suite == "prove")
        or (suite == "prove" and item.get_closest_marker("fuzz") is not None)
    )


def _drawn(item: pytest.Item, part: str | None, seed: str) -> bool:
    if part is None:
        return True
    number, _, parts = part.partition("/")
    digest = hashlib.sha256(f"{seed} {item.nodeid}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % int(parts) == int(number) - 1


def _spread(layers: dict[Path, str]) -> dict[Path, float]:
    """The place of each file: those that wait stand among those that compute, none at the end."""
    waiting = sorted((path for path in layers if layers[path] in WAITS), key=lambda path: -WAITS.index(layers[path]))
    computing = [path for path in layers if layers[path] not in WAITS]
    return {path: 0.75 * number / len(waiting) for number, path in enumerate(waiting)} | {
        path: number / len(computing) for number, path in enumerate(computing)
    }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its layer, choose, and order the files so that the cores are busy to the end."""
    suite, part, seed = (config.getoption(name) for name in ("--suite", "--slice", "--seed"))
    order = list(LAYERS)
    latest: dict[Path, int] = {}
    found: dict[Path, set[str]] = {}
    _leave_out(items)
    for item in items:
        name = layer(item)
        if item.get_closest_marker(name) is None:
            item.add_marker(name)
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker("fuzz")
        found.setdefault(item.path, set()).add(name)
        latest[item.path] = max(latest.get(item.path, 0), order.index(name))
    if not any("::" in each for each in config.args):
        remember(found)
    chosen = [item for item in items if _wanted(item, suite) and _drawn(item, part, seed)]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    places = _spread({item.path: order[latest[item.path]] for item in chosen})
    items[:] = sorted(chosen, key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: no collection of garbage need look at them again, and few are enough."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three for each core: many tests wait for a daemon, a lease or a server. Those of the layer unit never wait."""
    return (os.cpu_count() or 1) * (1 if config.option.markexpr == "unit" else 3)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files go to the workers whole; those of `TOGETHER` go to one worker."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "tests/schema/test_plans.py" if file.removeprefix("tests/") in TOGETHER else file

    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A unit test that leaves the process fails."""
    global _pure
    _pure = item.nodeid if item.get_closest_marker("unit") else None
    try:
        return (yield)
    finally:
        _pure = None
