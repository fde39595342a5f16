"""A command in the folder of a running `idem up` finds its database, and says which one it has taken."""

import asyncio
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fix_desk import Desk, Result, run
from fix_waiting import until
from group.conftest import command

from idem.cli.group import up_note

TAKEN = "using the database of the `idem up` that runs here"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands are called in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in (up_note.URL, up_note.FILE, up_note.APP, up_note.ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def running(here: Path, desk: Desk) -> Iterator[Path]:
    """The folder as a running `idem up` on the desk's database has it, with a sample of its own; gives the sample."""
    home = here / up_note.HOME
    home.mkdir(parents=True)
    sample = home / "idem.toml"
    sample.write_text(Path(desk.environment["IDEM_CONFIG"]).read_text())
    there = up_note.RunningGroup(desk.environment["IDEM_DATABASE_URL"], "test", str(sample))
    with (home / up_note.LOCK).open("w") as lock, up_note.noted(home, there):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield sample


async def called(*arguments: str, **environment: str) -> Result:
    return await asyncio.to_thread(run, list(arguments), {"BANK_TOKEN": "t", **environment})


async def test_a_command_finds_the_database_and_says_so(running: Path, desk: Desk) -> None:
    await desk.held("k1")
    for arguments in (["status"], ["dlq", "list"], ["config", "check"], ["dlq", "list", "--config", str(running)]):
        done = await called(*arguments)
        assert done.code == 0, (arguments, done)
        assert TAKEN in done.err
    assert "rejected" in (await called("dlq", "list")).out
    assert up_note.URL not in os.environ, "nothing of it is left behind"


async def test_who_names_another_installation_gets_that_one(running: Path, desk: Desk, here: Path) -> None:
    other = here / "other.toml"
    shutil.copy(running, other)
    for arguments, environment in (
        (["status"], {up_note.URL: "postgresql://nobody@127.0.0.1:1/none"}),
        (["status", "--config", str(other)], {}),
        (["status"], {up_note.FILE: str(other)}),
    ):
        done = await called(*arguments, **environment)
        assert TAKEN not in done.err
        assert done.code != 0
    shutil.copy(running, here / "idem.toml")
    assert TAKEN not in (await called("status")).err, "the folder's own idem.toml is not what `idem up` uses"


async def test_what_does_not_run_or_is_not_ours_is_not_taken(running: Path, here: Path) -> None:
    note = here / up_note.HOME / up_note.NOTE
    assert note.stat().st_mode & 0o077 == 0, "it may hold a password"
    for content in ("", "[]", "{}", json.dumps({"database": "x", "more": 1}), "no JSON"):
        note.write_text(content)
        assert TAKEN not in (await called("status")).err
    for name in (up_note.NOTE, up_note.LOCK):
        (here / up_note.HOME / name).unlink()
        done = await called("status")
        assert done.code == 2
        assert "nothing names a database" in done.err


async def test_a_lock_that_nobody_holds_is_no_running_installation(here: Path, desk: Desk) -> None:
    home = here / up_note.HOME
    home.mkdir(parents=True)
    (home / up_note.LOCK).write_text("123\n")
    with up_note.noted(home, up_note.RunningGroup(desk.environment["IDEM_DATABASE_URL"], "test")):
        assert up_note.found() is None
        assert (await called("status")).code == 2


@pytest.mark.timeout(170)
async def test_beside_a_real_one(linux: None, request: pytest.FixtureRequest) -> None:
    # A folder that every account can enter: pytest's own is shut to the account that the server of root runs as.
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="idem-test-beside-"))
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.chmod(folder, 0o755)
    async with command("up", "--port", "0", env={}, cwd=folder) as up:
        await until(
            lambda: "Ctrl-C stops everything" in up.out.decode() or up.process.returncode is not None, seconds=90
        )
        for arguments in (["status"], ["token", "list"], ["dlq", "list"]):
            async with command(*arguments, env={}, cwd=folder) as look:
                assert await look.end() == 0, look.said
            assert TAKEN in look.said
        assert await up.stop() == 0
    async with command("status", env={}, cwd=folder) as look:
        assert await look.end() == 2, look.said
    assert "nothing names a database" in look.said
