"""`idem bench`, small: it really accepts, works and answers, says all that it promises to say, and leaves nothing."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from xml.etree import ElementTree

import psycopg
import pytest
from fix_sql import query
from fix_waiting import until_it_holds

from idem.cli.bench import database

pytestmark = pytest.mark.timeout(300)

IDEM = (sys.executable, "-m", "idem.cli.main")
TINY = ("--intents", "20", "--connections", "2", "--slots", "10", "--latency", "1")
COSTS = {
    "intents", "rate", "cpu", "postgresql_cpu", "statements", "commits", "wal", "dead", "disk", "rss",
}  # fmt: skip
LONG = ("--intents", "1000000", "--only", "accept")
"""Runs until it is ended."""


def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    return {**kept, "IDEM_CONFIG": str(tmp_path / "none.toml")}


def bench(url: str, tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*IDEM, "bench", "--database-url", url, *arguments],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=250,
    )  # fmt: skip


def left(url: str) -> set[str]:
    """The databases of benches. Tests of other processes may run some of their own on the same server."""
    return {name for (name,) in query(url, database.LEFT, {"mark": database.MARK})}


@pytest.fixture
def role(superuser_url: str) -> Iterator[str]:
    """The URL of a role of this test's own that may create databases, in a database of its own: so that its benches
    and those of other tests do not meet.
    """
    with made_role(superuser_url, "CREATEDB") as url:
        yield url


@contextmanager
def made_role(superuser_url: str, right: str) -> Iterator[str]:
    name = f"bencher_{secrets.token_hex(4)}"
    query(superuser_url, f"CREATE ROLE {name} LOGIN {right} PASSWORD 'x'")
    parts = urlsplit(superuser_url)
    host = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{name}:x@{host}"))
    for (owned,) in query(superuser_url, f"SELECT datname FROM pg_database WHERE datdba = '{name}'::regrole"):
        query(superuser_url, f"DROP DATABASE {owned} WITH (FORCE)")
    query(superuser_url, f"DROP ROLE {name}")


def of_role(url: str) -> set[str]:
    """The databases that this role owns."""
    return {
        name for (name,) in query(url, "SELECT datname::text FROM pg_database WHERE datdba = current_user::regrole")
    }


@contextmanager
def started(url: str, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A long bench, once its database is there and its clients are connected to it."""
    process = subprocess.Popen(
        [*IDEM, "bench", "--database-url", url, *LONG],
        cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND application_name = %s"
    try:
        until_it_holds(
            lambda: process.poll() is not None or query(url, sessions, ("idem bench client",)) != [(0,)],
            what="the clients of the bench",
        )
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_everything_is_measured_and_nothing_is_left(role: str, tmp_path: Path) -> None:
    chart = tmp_path / "bench.svg"
    done = bench(role, tmp_path, *TINY, "--json", "--plot", str(chart))
    assert done.returncode == 0, done.stderr
    assert not of_role(role)
    said = json.loads(done.stdout)
    assert set(said) == {"settings", "about", "load", "postgresql_here", "results", "latency_ms", "ratios"}
    assert set(said["settings"]) == {
        "intents", "calls", "connections", "slots", "latency_ms", "processes", "repeat",
    }  # fmt: skip
    assert {"idem", "postgresql", "python", "cores", "fsync", "synchronous_commit"} <= set(said["about"])
    counts = {"accept": 20, "drain": 20, "http": 10, "tls": 10, "floor_accept": 40, "floor_drain": 40}
    assert {name: cost["intents"] for name, cost in said["results"].items()} == counts
    for name, cost in said["results"].items():
        assert set(cost) == COSTS
        assert cost["rate"] > 0 and cost["wal"] > 0 and cost["commits"] > 0, name
    # Each call deletes its row of the outbox and updates its intent and its key.
    assert said["results"]["drain"]["dead"] >= 3
    assert said["results"]["floor_drain"]["dead"] == 4
    assert said["latency_ms"]["intents"] == 20
    assert set(said["ratios"]) == {"accept", "drain"}
    root = ElementTree.fromstring(chart.read_text())
    assert root.tag.endswith("svg") and len(root.findall(".//{*}rect")) > 10


@pytest.mark.skipif(sys.platform != "linux", reason="CPU and memory are read from /proc")
def test_cpu_and_memory_are_of_the_processes_here(role: str, tmp_path: Path, superuser_url: str) -> None:
    done = bench(role, tmp_path, *TINY, "--only", "drain", "--json")
    said = json.loads(done.stdout)
    drain = said["results"]["drain"]
    assert drain["rss"] > 10_000_000
    if said["postgresql_here"]:
        assert drain["postgresql_cpu"] > 0
    else:
        assert os.environ.get("IDEM_TEST_DATABASE_URL"), "the embedded server runs on this machine"


def test_people_get_a_table_and_the_steps(role: str, tmp_path: Path) -> None:
    done = bench(role, tmp_path, *TINY, "--only", "accept,latency")
    assert done.returncode == 0, done.stderr
    assert "accept 20 intents" in done.stderr
    assert re.search(r"^accept +\d", done.stdout, re.MULTILINE)
    assert re.search(r"^accept: floor +\d", done.stdout, re.MULTILINE)
    assert "from the commit to the start of the call" in done.stdout
    assert "drain" not in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_finds_no_database_and_no_process(role: str, tmp_path: Path, number: signal.Signals) -> None:
    with started(role, tmp_path) as process:
        assert of_role(role)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 130, said
    assert "interrupted" in said and not of_role(role)
    others = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()"
    until_it_holds(lambda: query(role, others) == [(0,)], what="no session of the bench")


def test_the_next_run_drops_what_a_killed_one_left_and_nothing_of_a_running_one(role: str, tmp_path: Path) -> None:
    with started(role, tmp_path) as process:
        (killed,) = of_role(role)
        beside = bench(role, tmp_path, *TINY, "--only", "accept")
        assert beside.returncode == 0 and f"{killed} stays: another bench runs in it" in beside.stderr
        assert of_role(role) == {killed}
        process.kill()
        process.wait()
    assert of_role(role) == {killed}
    # Of the same name, and nobody's but its owner's.
    query(role, "CREATE DATABASE idem_bench_00c0ffee")
    after = bench(role, tmp_path, *TINY, "--only", "accept")
    assert after.returncode == 0 and f"{killed} was left by a killed bench and is dropped" in after.stderr
    assert of_role(role) == {"idem_bench_00c0ffee"}
    query(role, "DROP DATABASE idem_bench_00c0ffee")


def test_a_role_that_may_create_no_database_is_told_what_to_grant(superuser_url: str, tmp_path: Path) -> None:
    with made_role(superuser_url, "NOCREATEDB") as url:
        before = left(superuser_url)
        done = bench(url, tmp_path, *TINY)
        assert done.returncode == 2
        name = urlsplit(url).username
        assert f"ALTER ROLE {name} CREATEDB" in done.stderr and "Traceback" not in done.stderr
        assert not of_role(url)
        assert left(superuser_url) >= before - of_role(superuser_url)


def test_a_failure_drops_the_database_too(role: str, tmp_path: Path) -> None:
    """A worker that cannot start: the table of HTTP providers is refused for what the variable says."""
    with started(role, tmp_path) as process:
        (name,) = of_role(role)
        with psycopg.connect(role, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = %s AND application_name = %s",
                (name, "idem bench client"),
            )
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 1, said
    assert "accepting failed" in said and "Traceback" not in said
    assert not of_role(role)


@pytest.mark.parametrize("only", ["drian", "accept,,drain", ""])
def test_unknown_parts_are_refused(only: str, tmp_path: Path) -> None:
    done = bench("postgresql://nobody@localhost/none", tmp_path, "--only", only)
    assert done.returncode == 2 and "accept,drain,http,tls,latency" in done.stderr


def test_a_url_that_is_none_is_refused_without_being_shown(tmp_path: Path) -> None:
    done = bench("mysql://me:secret@localhost/none", tmp_path)
    assert done.returncode == 2 and "--database-url" in done.stderr and "secret" not in done.stderr


def result(**more: Any) -> Any:
    from idem.cli.bench.measured import Cost
    from idem.cli.bench.run import BenchResult
    from idem.cli.bench.settings import BenchSettings

    about = {"idem": "1", "postgresql": "18", "cores": "2", "fsync": "on", "synchronous_commit": "on"}
    values: dict[str, Any] = {
        "costs": {"accept": Cost(10, 100.0)}, "latency": None, "here": False, "load": (0.0, 0.0), **more,
    }  # fmt: skip
    return BenchResult(settings=BenchSettings(), about=about, **values)


def test_the_cpu_of_a_server_elsewhere_is_not_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    from idem.cli.bench import report

    report.show(result())
    assert "not on this machine" in capsys.readouterr().out
    assert report.as_data(result())["results"]["accept"]["postgresql_cpu"] is None


def test_a_chart_of_one_part_alone_is_one() -> None:
    from idem.cli.bench import plot
    from idem.cli.bench.measured import Latency

    for found in (result(), result(costs={}, latency=Latency(1, 1.0, 2.0, 3.0, 4.0))):
        assert ElementTree.fromstring(plot.svg(found)).findall(".//{*}text")
