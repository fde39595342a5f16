"""`idem up`: what it prints works when pasted, its data stay, and nothing of it outlives it."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fix_desk import Desk
from fix_waiting import until
from group.conftest import Command, command, left_of

pytestmark = pytest.mark.timeout(170)

END = "Ctrl-C stops everything; the data stays."


@pytest.fixture
async def folder(linux: None) -> AsyncIterator[Path]:
    """A folder that every account can enter: pytest's own is shut to the account that the server of root runs as."""
    made = Path(tempfile.mkdtemp(dir="/tmp", prefix="idem-test-up-"))
    os.chmod(made, 0o755)
    yield made
    await until(lambda: not left_of(str(made)), seconds=30)
    shutil.rmtree(made)


@contextlib.asynccontextmanager
async def up(folder: Path, *options: str, **env: str) -> AsyncIterator[Command]:
    """`idem up` in this folder, when it has said that it is up."""
    async with command("up", "--port", "0", *options, env=env, cwd=folder) as running:
        await until(lambda: END in running.out.decode() or running.process.returncode is not None, seconds=90)
        assert running.process.returncode is None, running.said
        yield running


def pasted(running: Command) -> str:
    """The request that it prints."""
    found = re.search(r"^curl .*?[^\\]$", running.out.decode(), re.MULTILINE | re.DOTALL)
    assert found is not None, running.said
    return found[0]


async def shell(line: str, cwd: Path | None = None) -> str:
    """What the shell of a new terminal makes of it, in which no environment is activated."""
    pipe = asyncio.subprocess.PIPE
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    ran = await asyncio.create_subprocess_exec("bash", "-c", line, stdout=pipe, stderr=pipe, env=env, cwd=cwd)
    out, err = await asyncio.wait_for(ran.communicate(), 30)
    assert ran.returncode == 0, err.decode()
    return out.decode()


@pytest.fixture
def curl() -> Iterator[None]:
    if shutil.which("curl") is None:
        pytest.skip("pastes a line with curl")
    yield


async def test_what_it_prints_works_and_stays_and_nothing_outlives_a_sigkill(folder: Path, curl: None) -> None:
    async with up(folder) as running:
        line = pasted(running)
        first = await shell(line)
        assert first.startswith("HTTP/1.1 201"), first
        assert '"status":"succeeded"' in first.replace(" ", "")
        again = await shell(line)
        assert again.startswith("HTTP/1.1 201") and "idempotent-replayed: true" in again.lower()
        assert again.splitlines()[-1] == first.splitlines()[-1]
        lines = re.findall(r"^.* status$", running.out.decode(), re.MULTILINE)
        assert len(lines) == 2
        for status in lines:
            assert "nothing is open" in await shell(status, cwd=folder)
        assert len(left_of(f"parent_watch {running.pid} ")) == 5
        running.process.kill()
        await until(lambda: not left_of(str(folder), f"parent_watch {running.pid} "), seconds=20)
    assert "Traceback" not in running.said

    async with up(folder) as later:
        address = re.compile(r"http://[^/]+")
        here = address.search(pasted(later))
        assert here is not None
        replayed = await shell(address.sub(here[0], line))
        assert "idempotent-replayed: true" in replayed.lower()
        assert replayed.splitlines()[-1] == first.splitlines()[-1]
        fresh = await shell(pasted(later))
        assert fresh.startswith("HTTP/1.1 201") and "idempotent-replayed" not in fresh.lower()
        assert await later.stop(signal.SIGTERM) == 0
        assert left_of(str(folder), f"parent_watch {later.pid} ") == {}
    for secret in (".idem/up/token", ".idem/up/bank.token", ".idem/up/bank.json"):
        assert (folder / secret).stat().st_mode & 0o077 == 0


async def test_of_two_in_one_folder_one_comes_up_and_the_other_says_so(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        both = [await stack.enter_async_context(command("up", "--port", "0", env={}, cwd=folder)) for _ in range(2)]
        await until(lambda: any(END in each.out.decode() for each in both), seconds=90)
        [winner] = [each for each in both if END in each.out.decode()]
        [loser] = [each for each in both if each is not winner]
        assert await loser.end() == 1
        assert f"another `idem up` runs in .idem/up (process {winner.pid})" in loser.said
        assert await winner.stop() == 0


async def test_a_taken_port_is_said_with_what_to_do(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with command("up", "--port", str(port), env={}, cwd=folder) as running:
            assert await running.end() == 2
    assert f"cannot listen on 127.0.0.1:{port}: another process is listening there" in running.said
    assert "--port 0" in running.said
    assert not (folder / ".idem/up/database").exists()


async def test_ctrl_c_before_it_is_up_leaves_nothing(folder: Path) -> None:
    for seconds in (0.0, 0.5, 1.2):
        async with command("up", "--port", "0", env={}, cwd=folder) as running:
            await until(lambda running=running: "there is no idem.toml here" in running.said)  # type: ignore[misc]
            await asyncio.sleep(seconds)
            running.process.send_signal(signal.SIGINT)
            assert await running.end() == 0
            assert "Traceback" not in running.said
        assert left_of(f"parent_watch {running.pid} ") == {}
        await until(lambda: not left_of(str(folder)), seconds=20)
    async with up(folder) as again:
        assert await again.stop(signal.SIGINT) == 0
        assert left_of(str(folder), f"parent_watch {again.pid} ") == {}


async def test_on_a_database_and_a_configuration_of_ones_own(desk: Desk, folder: Path, curl: None) -> None:
    """No bank is started, and what is printed does nothing by itself: it would be a real effect."""
    async with up(folder, **desk.environment) as running:
        line = pasted(running)
        assert "-d @params.json" in line and "/v1/intents/pay.keyed" in line
        assert not [text for text in left_of(f"parent_watch {running.pid} ").values() if "bank" in text]
        (folder / "params.json").write_text('{"amount": 5}')
        answer = await shell(f"cd {folder} && {line}")
        assert answer.startswith("HTTP/1.1 201"), answer
        assert desk.spine.effects() == 1
        assert await running.stop() == 0
    assert not (folder / ".idem/up/database").exists()


async def test_half_a_sample_is_said(folder: Path) -> None:
    home = folder / ".idem" / "up"
    home.mkdir(parents=True)
    (home / "idem.toml").write_text("environment = 'development'\n")
    async with command("up", "--port", "0", env={}, cwd=folder) as running:
        assert await running.end() == 2
    assert "Remove idem.toml" in running.said
