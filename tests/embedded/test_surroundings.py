"""Accounts, modes, paths and environments in which the embedded PostgreSQL has to start."""

import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from fix_sql import query
from fix_waiting import until_it_holds

import idem.testing.embedded
from idem.testing.embedded import EmbeddedError, acquire, find_binaries, relocation
from idem.testing.embedded.account import server_account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends the server an account")


def selects_one(url: str) -> bool:
    return query(url, "SELECT 1")[0] == (1,)


def test_umask_077(fresh_home, start_user):
    assert selects_one(start_user(fresh_home, TEST_UMASK="077")["url"])


def test_umask_000_leaves_the_socket_to_its_owner(home, start_user):
    assert Path(start_user(home, TEST_UMASK="000")["socket_dir"]).stat().st_mode & 0o777 == 0o700


def test_a_hostile_environment(fresh_home, start_user):
    hostile = {
        "LANG": "xx_YY.UTF-8",
        "LC_ALL": "xx_YY.UTF-8",
        "TZ": "Mars/Olympus",
        "PGPORT": "1",
        "PGHOST": "nowhere.invalid",
        "PGDATA": "/nonexistent",
        "PGUSER": "nobody",
        "PGOPTIONS": "-z",
        "PYTHONWARNINGS": "error",
        "TMPDIR": "/nonexistent",
    }
    user = start_user(fresh_home, **hostile)
    with psycopg.connect(user["url"]) as db:
        assert db.execute("SHOW timezone").fetchone() == ("UTC",)
        assert db.execute("SELECT datcollate FROM pg_database WHERE datname = 'idem'").fetchone() == ("C",)


def test_a_path_too_long_for_a_socket(folder, start_user, processes_of):
    home = folder / ("long" * 15) / ("longer" * 15)
    user = start_user(home)
    assert selects_one(user["url"])
    outside = Path(user["socket_dir"])
    assert not outside.is_relative_to(home)
    assert outside.stat().st_mode & 0o777 == 0o700
    user.leave()
    until_it_holds(lambda: not processes_of(home))
    assert not outside.exists()


def test_a_path_with_signs_that_mean_something_elsewhere(folder, start_user):
    assert selects_one(start_user(folder / "größe & 100% 'of' a, b")["url"])


def test_a_module_of_the_callers_folder_does_not_stand_in_for_the_standard_library(folder, home):
    (folder / "json.py").write_text("")
    (folder / "signal.py").write_text("raise SystemExit('the wrong signal module')")
    script = "import sys; here = sys.path.pop(0); import idem.testing.embedded as e; sys.path.insert(0, here)\n"
    script += f"e.acquire({str(home)!r}, linger=0, durable=False).close()"
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, timeout=60)


def test_modes_of_what_was_there_before_stay(folder):
    parents = [folder / "a", folder / "a" / "b", folder / "a" / "b" / "home"]
    for parent, mode in zip(parents, (0o751, 0o755, 0o775), strict=True):
        parent.mkdir()
        parent.chmod(mode)
    before = [(p.stat().st_mode, p.stat().st_uid) for p in (Path("/"), Path("/tmp"), folder, *parents)]
    with acquire(parents[-1], linger=0, durable=False) as pg:
        assert pg.home == parents[-1]
    assert [(p.stat().st_mode, p.stat().st_uid) for p in (Path("/"), Path("/tmp"), folder, *parents)] == before


@as_root
def test_root_lends_the_server_an_account(home):
    with acquire(home, linger=0, durable=False) as pg:
        owner = Path(f"/proc/{pg.server_pid}").stat().st_uid
        assert pwd.getpwuid(owner).pw_name in ("postgres", "nobody")


@as_root
def test_root_in_anothers_folder_runs_the_server_as_its_owner_and_does_not_shut_him_out(folder, fresh_home):
    owner = pwd.getpwnam("daemon")
    fresh_home.mkdir(mode=0o700)
    os.chown(fresh_home, owner.pw_uid, owner.pw_gid)
    with acquire(fresh_home, linger=0, durable=False) as pg:
        assert pg.home == fresh_home
        assert Path(f"/proc/{pg.server_pid}").stat().st_uid == owner.pw_uid
        assert {p.stat().st_uid for p in fresh_home.glob("*.lock")} == {owner.pw_uid}


@as_root
def test_a_home_shut_to_the_servers_account_moves_and_its_parents_stay_shut(folder, monkeypatch, processes_of):
    monkeypatch.setattr(relocation, "ROOT_STATE", folder / "state")
    shut = folder / "shut"
    shut.mkdir(mode=0o700)
    home = shut / "home"
    with acquire(home, linger=0, durable=False) as pg:
        assert pg.home.parent == folder / "state"
        assert str(pg.home) in (home / "MOVED").read_text()
        assert shut.stat().st_mode & 0o777 == 0o700
        query(pg.url, "CREATE TABLE kept AS SELECT 42 AS n")
    until_it_holds(lambda: not processes_of(folder))
    shut.chmod(0o755)  # its place is open now, and its data is elsewhere all the same
    with acquire(home, linger=0, durable=False) as pg, psycopg.connect(pg.url) as db:
        assert db.execute("SELECT n FROM kept").fetchall() == [(42,)]


@as_root
def test_programs_shut_to_the_servers_account_are_copied(folder, monkeypatch):
    monkeypatch.setattr(relocation, "ROOT_STATE", folder / "state")
    bindir, _ = find_binaries()
    account = server_account(folder)
    assert relocation.programs_for(account, bindir) == bindir or not account.can_run(bindir / "initdb")
    shut = folder / "shut"
    package = bindir.parent.parent
    for part in ("bin", "lib", "share"):
        if (bindir.parent / part).is_dir():
            shutil.copytree(bindir.parent / part, shut / package.name / bindir.parent.name / part, symlinks=True)
    if (libraries := package.parent / f"{package.name}.libs").is_dir():
        shutil.copytree(libraries, shut / libraries.name)
    shut.chmod(0o700)
    copied = relocation.programs_for(account, shut / package.name / bindir.parent.name / "bin")
    assert copied.is_relative_to(folder / "state")
    assert account.can_run(copied / "postgres")
    assert shut.stat().st_mode & 0o777 == 0o700
    assert not list((folder / "state").glob("copying-*"))


@as_root
def test_an_ordinary_user(folder, start_user, processes_of):
    account = pwd.getpwnam("nobody")
    package = folder / "path" / "idem" / "testing" / "embedded"
    shutil.copytree(Path(idem.testing.embedded.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    bindir, _ = find_binaries()
    python = next((p for p in (sys.executable, "/usr/bin/python3") if runs_for(account, p)), None)
    if python is None:
        pytest.skip("'nobody' can run no Python 3.11 or newer here: this one's folder is shut to it")
    if not runs_for(account, str(bindir / "postgres")):
        pytest.skip(f"'nobody' cannot run the programs in {bindir}")
    home = folder / "home"
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    user = start_user(
        home, python=python, uid=account.pw_uid, PYTHONPATH=str(folder / "path"), IDEM_PG_BIN=str(bindir), HOME="/"
    )
    assert Path(f"/proc/{user['server_pid']}").stat().st_uid == account.pw_uid
    assert user["home"] == str(home)
    assert selects_one(user["url"])
    user.kill()
    until_it_holds(lambda: not processes_of(home))


def runs_for(account: pwd.struct_passwd, program: str) -> bool:
    check = [program, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    try:
        return (
            subprocess.run(
                [program, "--version"] if program.endswith("postgres") else check,
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[],
                cwd="/",
                capture_output=True,
            ).returncode
            == 0
        )
    except OSError:
        return False


@as_root
def test_a_folder_of_root_is_a_clear_error_to_others(folder, home, start_user):
    python = next((p for p in (sys.executable, "/usr/bin/python3") if runs_for(pwd.getpwnam("nobody"), p)), None)
    if python is None:
        pytest.skip("'nobody' can run no Python 3.11 or newer here")
    with acquire(home, linger=0, durable=False):
        pass
    path = folder / "path"
    shutil.copytree(Path(idem.testing.embedded.__file__).parent, path / "idem" / "testing" / "embedded")
    user = start_user(home, python=python, uid=pwd.getpwnam("nobody").pw_uid, PYTHONPATH=str(path))
    assert "run as that user or remove the folder" in user["error"]


def test_a_wrong_idem_pg_bin_says_so_and_what_to_do(home, folder, monkeypatch):
    monkeypatch.setenv("IDEM_PG_BIN", str(folder))
    with pytest.raises(EmbeddedError) as caught:
        acquire(home)
    assert str(caught.value) == (
        f"IDEM_PG_BIN names {folder}, which has no executable initdb and no postgres. Set it to the folder with "
        "initdb and postgres of PostgreSQL 14 or newer, or unset it to let idem search"
    )


@pytest.mark.parametrize(
    ("postgres", "complaint"),
    [
        ("echo 'postgres (PostgreSQL) 13.9'", "PostgreSQL 13, which is too old"),
        ("echo 'libxml2.so.2: not found' >&2; exit 127", "does not run (libxml2.so.2: not found)"),
    ],
)
def test_programs_that_will_not_do_are_named_with_the_reason(folder, monkeypatch, postgres, complaint):
    for name in ("initdb", "postgres"):
        (folder / name).write_text(f"#!/bin/sh\n{postgres}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("IDEM_PG_BIN", str(folder))
    with pytest.raises(EmbeddedError) as caught:
        find_binaries()
    assert complaint in str(caught.value)


def test_a_server_that_does_not_start_says_why(fresh_home):
    major = find_binaries()[1]
    (fresh_home / f"pg{major}").mkdir(parents=True)
    (fresh_home / f"pg{major}" / "something").touch()
    begun = time.monotonic()
    with pytest.raises(EmbeddedError, match="is in the way") as caught:
        acquire(fresh_home, linger=0, durable=False)
    assert "is not a cluster" in str(caught.value)
    assert time.monotonic() - begun < 30
