"""`--wait` covers the whole start of a daemon, and goes by what the server says in SQLSTATEs, in whatever language."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import psycopg
import pytest
from fix_desk import Desk
from fix_line import target, through
from fix_processes import started

from idem.cli.base import start_checks
from idem.outbox.database.address import Address
from idem.testing.proxy import Direction, Proxy, ProxyAction

PATIENCE = 60.0


def worker(desk: Desk, url: str, wait: float = 30) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    environment = desk.environment | {"IDEM_DATABASE_URL": url}
    return started("worker", "run", "--wait", str(wait), env=environment, stdout=PIPE, stderr=PIPE)


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_line_that_is_cut_at_any_connection_of_the_start_does_not_end_it(desk: Desk, number: int) -> None:
    cut: list[int] = []

    def watch(connection: int, direction: Direction, _data: bytes) -> ProxyAction:
        if connection == number and direction == "to_client" and not cut:
            cut.append(connection)
            return "cut"
        return "pass"

    async with (
        Proxy(target(desk.spine.url), watch) as proxy,
        worker(desk, through(desk.spine.url, proxy)) as process,
        asyncio.timeout(PATIENCE),
    ):
        while not await desk.alive("worker"):
            assert process.returncode is None, (await process.communicate())[1].decode()
            await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
        assert process.returncode == 0, err.decode()


# A process of its own: libpq's ping holds the lock of its interpreter.
REFUSING = """
import socket, struct, sys

state, text = sys.argv[1:]
fields = f"SFATAL\\0VFATAL\\0C{state}\\0M{text}\\0\\0".encode()
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
while True:
    line, _ = listening.accept()
    while len(head := line.recv(8)) == 8:
        length, code = struct.unpack("!II", head)
        line.recv(length - 8)
        if code in (80877103, 80877104):  # TLS or GSSAPI are asked for
            line.sendall(b"N")
            continue
        print("asked", flush=True)  # before the answer: the test ends this server once it has that
        line.sendall(b"E" + struct.pack("!I", len(fields) + 4) + fields)
        break
    line.close()
"""


@asynccontextmanager
async def refusing(sqlstate: str, text: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Address]]:
    """A server that refuses every connection with this SQLSTATE, in French; it prints a line for each."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REFUSING, sqlstate, text, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    try:
        yield server, Address.of(f"postgresql://idem@127.0.0.1:{port}/shop")
    finally:
        if server.returncode is None:
            server.kill()
            await server.communicate()


async def asked(server: asyncio.subprocess.Process) -> int:
    """How many connections it has refused; it ends."""
    server.kill()
    return (await server.communicate())[0].count(b"asked")


async def nothing(_: object) -> None:
    """No check is reached."""


async def test_a_server_that_starts_is_waited_for_in_any_language() -> None:
    async with refusing("57P03", "le système de bases de données se lance") as (server, address):
        with pytest.raises(psycopg.OperationalError, match="se lance"):
            await start_checks.ready(address, "worker", 4.0, nothing)
        assert await asked(server) > 2 * start_checks.REFUSALS, "it was asked again and again, each time with a ping"


async def test_what_a_server_refuses_for_good_ends_the_start_in_any_language() -> None:
    async with refusing("28P01", "authentification par mot de passe échouée") as (server, address):
        with pytest.raises(psycopg.OperationalError, match="mot de passe"):
            await asyncio.wait_for(start_checks.ready(address, "worker", 3600.0, nothing), PATIENCE)
        assert await asked(server) == 2 * start_checks.REFUSALS
