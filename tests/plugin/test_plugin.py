"""The pytest plugin as a user has it: an application of theirs, their conftest, their pytest."""

import subprocess
import sys
from pathlib import Path

import pytest
from fix_project import Project

THEIRS = Path(__file__).parent / "their_tests"
TIMEOUT = (THEIRS / "timeout.py").read_text()


@pytest.mark.parametrize("theirs", ["timeout", "web"])
def test_the_timeout_after_the_charge_is_twelve_lines(theirs: str):
    source = (THEIRS / f"{theirs}.py").read_text()
    test = source[source.index("def test_timeout") :].partition("\n\n\n")[0]
    assert len([line for line in test.splitlines() if line.strip()]) <= 12


def test_the_page_in_the_docs_shows_the_test_that_runs():
    page = (Path(__file__).parents[2] / "docs" / "adopt" / "testing.md").read_text()
    shown = page.partition("```python\n")[2].partition("```")[0]
    code = "\n".join(line.partition("  #")[0].rstrip() for line in shown.splitlines())
    assert code in (THEIRS / "web.py").read_text()


def test_their_endpoint_of_fastapi(project: Project):
    project.write(test_web=(THEIRS / "web.py").read_text())
    run = project.run()
    assert run.count("passed") == 2, run.output


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, 2])
def test_their_tests_pass_and_leave_no_database(project: Project, server: str, workers: int):
    project.write(test_timeout=TIMEOUT, test_payments=(THEIRS / "payments.py").read_text())
    run = project.run(*(["-n", str(workers)] if workers else []))
    assert run.code == 0, run.output
    assert run.count("passed") == 23
    assert project.databases(server) == []


FAILING = """
import pytest
from shop import pay


def test_fails(engine, order, lab):
    pay(engine, order, "k1")
    connection = engine.connect()  # left open
    assert lab.state("k1") == "completed"


def test_breaks_in_its_fixture(idem_database, no_such_fixture):
    pass
"""


def test_a_failing_test_leaves_no_database(project: Project, server: str):
    project.write(test_failing=FAILING)
    run = project.run()
    assert (run.code, run.count("failed"), run.count("error")) == (1, 1, 1), run.output
    assert "assert 'in_progress' == 'completed'" in run.output
    assert project.databases(server) == []


KILLED = """
import os, signal


def test_dies(idem_database):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_behind_is_dropped_by_the_next(project: Project, server: str):
    project.write(test_killed=KILLED)
    assert project.run().code == -9
    assert len(project.databases(server)) == 2
    project.write(test_killed="def test_lives(idem_database):\n    pass\n")
    assert project.run().code == 0
    assert project.databases(server) == []


def test_without_a_schema_of_their_own_there_is_ours(project: Project):
    project.write(
        conftest="",
        test_ours="""
import psycopg


def test_ours(idem_database, idem_lab):
    with psycopg.connect(idem_database) as connection:
        assert connection.execute("SELECT count(*) FROM idem.intents").fetchone() == (0,)
        assert connection.execute("SELECT database_name = current_database() FROM idem.installation").fetchone()[0]
""",
    )
    run = project.run()
    assert run.code == 0, run.output


def test_a_pool_that_their_migrations_left_open_is_no_obstacle(project: Project):
    project.write(
        conftest="""
import psycopg
import pytest

left_open = []


@pytest.fixture(scope="session")
def idem_migrate():
    return lambda url: left_open.append(psycopg.connect(url))
""",
        test_open="def test_one(idem_database): pass\ndef test_two(idem_database): pass\n",
    )
    run = project.run()
    assert run.count("passed") == 2, run.output


NOTHING_INSTALLED = """
from idem.testing.embedded import binaries

binaries._candidates = lambda: iter(())  # neither the wheel nor a system PostgreSQL
"""


def test_without_a_server_they_are_told_what_to_install(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("IDEM_TEST_DATABASE_URL")
    monkeypatch.delenv("IDEM_PG_BIN", raising=False)
    project.write(conftest=NOTHING_INSTALLED, test_one="def test_one(idem_database): pass\n")
    run = project.run()
    assert run.code == 1
    assert 'pip install ".[embedded]"' in run.output
    assert "Traceback" not in run.output


@pytest.mark.process
def test_the_embedded_server_is_started_below_their_root(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("IDEM_TEST_DATABASE_URL")
    project.write(test_one="def test_one(order): pass\ndef test_two(order): pass\n")
    run = project.run("-n", "2")
    assert run.count("passed") == 2, run.output
    assert (project.folder / ".idem" / "test").is_dir()


def test_a_server_that_is_not_there_is_named_by_its_variable(project: Project):
    project.write(test_one="def test_one(idem_database): pass\n")
    run = project.run(IDEM_TEST_DATABASE_URL="postgresql://u:secret@127.0.0.1:9/x")
    assert run.code == 1
    assert "cannot reach the server for tests" in run.output and "IDEM_TEST_DATABASE_URL" in run.output
    assert "secret" not in run.output


def test_loading_it_imports_nothing_of_idem_but_itself(tmp_path: Path):
    program = (
        "import sys, pytest; before = set(sys.modules); import idem.testing.plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    told = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert eval(told.stdout) == ["idem", "idem.testing", "idem.testing.plugin"]


def test_every_fixture_of_it_begins_with_idem(project: Project):
    project.write(conftest="")
    run = project.run("--fixtures", "-q")
    ours = run.output.partition("fixtures defined from idem.testing.plugin")[2].partition("fixtures defined from")[0]
    named = [line.split()[0] for line in ours.splitlines() if line and line[0].isalpha()]
    assert "idem_lab" in named
    assert all(name.startswith("idem_") for name in named), named
