"""Starting, joining and leaving the embedded PostgreSQL."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fix_sql import query
from fix_waiting import until_it_holds

from idem.testing.embedded import EmbeddedError, acquire


def one(url: str, question: str) -> object:
    return query(url, question)[0][0]


def test_the_first_start_makes_a_durable_cluster_with_role_and_database(fresh_home):
    with acquire(fresh_home, linger=0) as pg:
        assert pg.url.startswith("postgresql://idem@/idem?host=")
        assert pg.url.endswith("&port=5432")
        assert one(pg.url, "SELECT current_user || ' ' || current_database()") == "idem idem"
        assert one(pg.url, "SELECT rolcreatedb AND NOT rolsuper FROM pg_roles WHERE rolname = 'idem'")
        assert one(pg.superuser_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        assert one(pg.url, "SHOW fsync") == "on"
        assert one(pg.url, "SHOW listen_addresses") == ""
        assert int(str(one(pg.url, "SHOW max_connections"))) >= 200
        assert Path(pg.socket_dir).stat().st_mode & 0o777 == 0o700


def test_data_survives_a_restart(home, processes_of):
    with acquire(home, linger=0, durable=False) as pg:
        before = pg.server_pid
        query(pg.url, "CREATE TABLE kept AS SELECT 42 AS n")
    until_it_holds(lambda: not processes_of(home))
    with acquire(home, linger=0, durable=False) as pg:
        assert pg.server_pid != before
        assert one(pg.url, "SELECT n FROM kept") == 42


def test_users_share_one_server_and_the_last_to_leave_ends_it(home, processes_of):
    first = acquire(home, linger=0.2, durable=False)
    second = acquire(home, durable=False)
    assert second.server_pid == first.server_pid
    first.close()
    first.close()
    time.sleep(1)  # longer than the linger: a server that ended with its starter would be gone
    assert one(second.url, "SELECT 1") == 1
    second.close()
    until_it_holds(lambda: not processes_of(home))
    left = {"pg.log", "pg.log.1", f"pg{first.major}", "start.lock", "supervisor.lock", "users.lock"}
    assert {p.name for p in home.iterdir()} == left


def test_six_starters_on_a_fresh_folder_get_one_server(fresh_home, start_user, processes_of):
    users = [start_user(fresh_home) for _ in range(6)]
    assert len({user["server_pid"] for user in users}) == 1
    # A backend that has just been forked still has the server's command line: only a second server keeps it.
    until = time.monotonic() + 10
    while (servers := sum("/postgres -D" in each for each in processes_of(fresh_home).values())) != 1:
        assert time.monotonic() < until, servers
    assert one(users[0]["url"], "SELECT count(*) FROM pg_database WHERE datname = 'idem'") == 1


def test_starts_that_race_a_shutdown_each_get_a_server(folder, home):
    cycles = (
        "import os, psycopg; from idem.testing.embedded import acquire\n"
        "for n in range(8):\n"
        "    with acquire(os.environ['TEST_HOME'], linger=0, durable=False) as pg:\n"
        "        psycopg.connect(pg.url).close()\n"
    )
    env = os.environ | {"TEST_HOME": str(home)}
    racers = [subprocess.Popen([sys.executable, "-c", cycles], env=env, cwd=folder) for _ in range(3)]
    assert [racer.wait(timeout=90) for racer in racers] == [0, 0, 0]


def test_whoever_needs_a_durable_server_is_not_given_one_without_fsync(home):
    with acquire(home, linger=0.2, durable=False), pytest.raises(EmbeddedError, match="without fsync"):
        acquire(home, linger=0.2, durable=True)


def test_a_server_that_is_not_ready_in_time_is_an_error_and_no_leftover(home, processes_of):
    with pytest.raises(EmbeddedError, match=r"was not ready within 0 s.*Try again"):
        acquire(home, linger=0, durable=False, timeout=0)
    until_it_holds(lambda: not processes_of(home))


@pytest.mark.parametrize("module", ["idem.testing.embedded", "idem.testing.embedded.supervisor"])
def test_importing_loads_the_standard_library_only(module):
    script = (
        "import sys; before = set(sys.modules); import " + module + "\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(loaded - sys.stdlib_module_names - {'idem'}))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == ""
