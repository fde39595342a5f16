"""Whoever is killed, nothing is left running and the next user gets a server with its data."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
from fix_sql import query
from fix_waiting import until_it_holds

from idem.testing.embedded import Embedded, acquire
from idem.testing.embedded.account import server_account
from idem.testing.embedded.orphans import stop_orphan


def kill(*pids: int) -> None:
    """Kill these, and return when they are dead, if not reaped: until then they hold their locks."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until_it_holds(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def user(home, start_user):
    """A user whose server has something to keep."""
    user = start_user(home)
    query(user["url"], "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS n")
    return user


def remembers(pg: Embedded) -> bool:
    return query(pg.url, "SELECT n FROM kept") == [(42,)]


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_the_only_user(home, user, processes_of):
    assert len(processes_of(home)) > 2
    user.kill()
    until_it_holds(lambda: not processes_of(home))
    assert not (home / "run").exists()
    assert not (home / "pg.json").exists()
    with acquire(home, linger=0, durable=False) as pg:
        assert remembers(pg)


def test_the_user_while_the_server_starts(fresh_home, start_user, processes_of):
    user = start_user(fresh_home)
    until_it_holds(lambda: any("initdb" in command for command in processes_of(fresh_home).values()))
    user.kill()
    until_it_holds(lambda: not processes_of(fresh_home))
    with acquire(fresh_home, linger=0, durable=False) as pg:
        assert answers(pg.url)


def test_the_supervisor(home, user, supervisor_of, processes_of):
    kill(supervisor_of(home))
    until_it_holds(lambda: not processes_of(home))
    with acquire(home, linger=0, durable=False) as pg:
        assert pg.server_pid != user["server_pid"]
        assert remembers(pg)


def test_a_user_who_comes_right_after_the_supervisor_was_killed(home, user, supervisor_of):
    kill(supervisor_of(home))
    with acquire(home, linger=0, durable=False) as pg:
        assert remembers(pg)


def test_the_postmaster_comes_back_for_those_who_hold_it(home, user):
    kill(user["server_pid"])
    until_it_holds(lambda: answers(user["url"]))
    with acquire(home, linger=0, durable=False) as pg:
        assert pg.server_pid != user["server_pid"]
        assert remembers(pg)


def test_supervisor_and_postmaster_while_a_backend_works_on(home, user, supervisor_of):
    # Computing, it does not notice that its postmaster is gone; a second postmaster beside it would be ruin.
    with contextlib.closing(psycopg.connect(user["url"])) as db:
        db.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 8000000) AS a(n) WHERE n % 7 = 0")
        backend = Path(f"/proc/{db.info.backend_pid}/cwd")
        # In this order: the supervisor's death has the postmaster end its backends.
        kill(user["server_pid"], supervisor_of(home))
        assert backend.exists()
        with acquire(home, linger=0, durable=False) as pg:
            assert not backend.exists()
            assert remembers(pg)


def test_supervisor_and_initdb_halfway(fresh_home, start_user, processes_of):
    user = start_user(fresh_home)
    until_it_holds(lambda: any(fresh_home.glob("initdb-*/global")))  # it has begun to write
    kill(*(pid for pid in processes_of(fresh_home) if pid != user.process.pid))
    assert "does not start" in user["error"]
    assert not any(fresh_home.glob("pg[0-9]*"))
    with acquire(fresh_home, linger=0, durable=False) as pg:
        assert answers(pg.url)
    assert not any(fresh_home.glob("initdb-*"))


@pytest.fixture
def stranger():
    """A program of the server's account that has nothing to do with PostgreSQL."""
    account = server_account(Path("/"))
    process = subprocess.Popen(
        ["sleep", "600"], user=account.uid, group=account.gid, extra_groups=account.groups, cwd="/"
    )
    yield process
    process.kill()
    process.wait()


def killed_server(home, user, supervisor_of, processes_of) -> Path:
    kill(supervisor_of(home), user["server_pid"])
    until_it_holds(lambda: not processes_of(home))
    pid_file = home / f"pg{user['major']}" / "postmaster.pid"
    assert pid_file.exists()
    return pid_file


def test_a_pid_file_whose_number_is_now_anothers(home, user, stranger, supervisor_of, processes_of):
    pid_file = killed_server(home, user, supervisor_of, processes_of)
    for file in (pid_file, home / "run" / ".s.PGSQL.5432.lock"):
        file.write_text(file.read_text().replace(str(user["server_pid"]), str(stranger.pid), 1))
    with acquire(home, linger=0, durable=False) as pg:
        assert remembers(pg)
    assert stranger.poll() is None


@pytest.mark.parametrize("left", ["", "12", "no number\n"])
def test_a_pid_file_that_was_half_written(home, user, supervisor_of, processes_of, left):
    killed_server(home, user, supervisor_of, processes_of).write_text(left)
    with acquire(home, linger=0, durable=False) as pg:
        assert remembers(pg)


def test_a_postmaster_without_supervisor_is_told_from_other_programs_and_stopped(folder, home, user):
    """The kernel ends it on Linux; elsewhere the next start has to find it."""
    server = user["server_pid"]
    (folder / "postmaster.pid").write_text(f"{server}\n")
    stop_orphan(folder)  # a stale file of another cluster that names it by chance
    assert is_alive(server)
    stop_orphan(home / f"pg{user['major']}")
    assert not is_alive(server)
