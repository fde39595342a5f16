"""What a client may do with its connections, and what it may not take from the others: over real sockets."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from fix_api import PAY, Client
from fix_serving import served as serving
from fix_spine import Spine
from serving.apps import ok, said

from idem.outbox.calls.http_call import call
from idem.outbox.calls.kept_connections import KeptConnections
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.calls.tls_settings import ssl_context
from idem.outbox.domain.contract import Account, FrozenRequest, Response
from idem.outbox.http_server import connections
from idem.outbox.http_server.side_server import Health, SideServer
from idem.outbox.values import clock
from idem.testing.bank.server import Server


def served(app: object = ok, most: int | None = None) -> contextlib.AbstractAsyncContextManager[int]:
    """The port of a server in this loop."""
    return serving(app, most)


def delaying() -> list[socket.socket]:
    """Connected TCP sockets of this process's loops that wait for an acknowledgement before they send a second part."""
    found = []
    for transport in [each for each in gc.get_objects() if type(each).__name__ == "_SelectorSocketTransport"]:
        line = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            tcp = line.family in (socket.AF_INET, socket.AF_INET6) and line.getpeername()
            if tcp and not line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY):
                found.append(line)
    return found


async def test_no_socket_waits_for_an_acknowledgement_before_it_sends(spine: Spine) -> None:
    """The API's, the webhooks' and the probes' (one server), the bank's, and that of a call to a provider."""
    seen: list[list[socket.socket]] = []

    async def look(_: object) -> None:
        seen.append(delaying())

    class Handler:
        async def __call__(self, *_: object) -> None:
            raise AssertionError

    bank = Server(Handler(), idle_seconds=5, max_body=100)  # type: ignore[arg-type]
    await bank.start("127.0.0.1", 0)
    contract = next(iter(spine.catalogue.providers.values())).contract

    async def app(scope: object, receive: object, send: object) -> None:
        await look(scope)
        await ok(scope, receive, send)

    kept = KeptConnections(ssl_context(), 60.0)
    async with served(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", bank.port)
        await asyncio.sleep(0.1)
        answer = await call(
            kept,
            Account("main", f"http://127.0.0.1:{port}"),
            FrozenRequest("GET", "/x", {}, b""),
            contract=contract,
            lease_ends=clock.boottime() + 60,
            margin=1,
            start=lambda: True,
            resolver=Resolver(),
        )
        assert isinstance(answer, Response) and answer.status == 200
        writer.close()
    await bank.stop()
    assert seen and not any(seen)


async def test_the_oldest_idle_connection_makes_room_for_a_new_one() -> None:
    async with served(most=5) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        idle[1][1].write(b"GET /half HTTP/1.1\r\nHos")  # a head by drops is no request
        await asyncio.sleep(0.2)
        for number in range(8):
            answer = await said(port, b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % number)
            assert answer.startswith(b"HTTP/1.1 200"), number
        assert await asyncio.wait_for(idle[0][0].read(), 10) == b""
        for _, writer in idle:
            writer.close()


async def test_a_connection_with_a_request_under_way_is_never_closed_for_another() -> None:
    async with served(most=3) as port:
        busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in busy:
            writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.3)
        waits = asyncio.create_task(said(port, b"GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        await asyncio.sleep(0.5)
        assert not waits.done()
        assert not any(reader.at_eof() for reader, _ in busy)
        for _, writer in busy:
            writer.close()
        assert (await waits).startswith(b"HTTP/1.1 200")


async def test_many_connections_at_once_are_all_answered() -> None:
    async with served() as port:
        asked = [said(port, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") for _ in range(300)]
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in await asyncio.gather(*asked))


async def test_a_head_that_comes_by_drops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIME", 0.5)
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            for letter in b"GET /a HTTP/1.1\r\nHost: " + b"a" * 1000:
                writer.write(bytes([letter]))
                await writer.drain()
                await asyncio.sleep(0.05)
                if reader.at_eof():
                    break
        assert reader.at_eof() or reader.exception()
        writer.close()


async def test_a_client_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED", 0.5)
    ended = asyncio.Event()

    async def large(scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict) and callable(send)
        if scope["type"] == "http":
            try:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(200):
                    await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
                    if not callable(receive) or scope["state"]["client_ended"].is_set():
                        break
            finally:
                ended.set()

    async with served(large) as port:
        line = socket.create_connection(("127.0.0.1", port))
        line.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(ended.wait(), 30)
        line.close()


async def test_ib_196_who_has_ended_its_side_still_gets_the_answer(api: Client) -> None:
    at = urlsplit(api.url)
    body = b'{"amount": 1}'
    head = (
        f"POST {PAY} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\nIdempotency-Key: half\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    assert at.port
    for more in ("", "Prefer: wait=20\r\n"):
        answer = await said(at.port, f"{head}{more}\r\n".encode() + body, end=True)
        assert answer.startswith((b"HTTP/1.1 202", b"HTTP/1.1 409")), more


async def test_a_body_that_was_cut_short_is_no_request() -> None:
    async with served() as port:
        answer = await said(port, b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", end=True)
        assert b" 200 " not in answer


async def test_a_message_with_two_lengths_is_refused_and_nothing_behind_it_is_read() -> None:
    smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    async with served() as port:
        answer = await said(
            port,
            b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(smuggled)
            + smuggled,
        )
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower() and b"framing_invalid" in answer


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        ("http://h/a?b=1", b"/a", b"h"),
        ("HTTPS://h:8443", b"/", b"h:8443"),
        ("/a", b"/a", b"x"),
        ("/http://h/a", b"/http://h/a", b"x"),
    ],
)  # fmt: skip
async def test_ib_191_a_target_in_absolute_form_is_its_path(target: str, path: bytes, host: bytes) -> None:
    async with served() as port:
        answer = await said(port, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.endswith(path + b" " + host)


async def test_ib_191_the_api_takes_a_target_in_absolute_form(api: Client) -> None:
    assert (await api.ask("abs")).status_code == 202
    at = urlsplit(api.url)
    assert at.port
    head = f"GET {api.url}{PAY.rpartition('/')[0]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n"
    answer = await said(at.port, f"{head}Connection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200") and b'"abs"' in answer


def test_probes_are_answered_while_the_loop_is_busy() -> None:
    health = Health()
    with contextlib.closing(SideServer("127.0.0.1", 0, health)) as beside:
        with urlopen(f"http://127.0.0.1:{beside.port}/readyz", timeout=10) as answer:
            assert answer.status == 200
        health.draining = True
        with pytest.raises(OSError, match="503"):
            urlopen(f"http://127.0.0.1:{beside.port}/readyz", timeout=10)
        health.draining = False
        health._beat -= 60
        with pytest.raises(OSError, match="503"):
            urlopen(f"http://127.0.0.1:{beside.port}/healthz", timeout=10)
        with urlopen(f"http://127.0.0.1:{beside.port}/metrics", timeout=10) as answer:
            assert b"idem_" in answer.read()


FEW = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
from idem.outbox.observe import telemetry
telemetry.set_up(json=True, level="info")
from idem.outbox.http_server import descriptors
if sys.argv[1] == "too many":
    descriptors.room = lambda reserved=0: 10_000
from idem.outbox.http_server.serving import serve
from serving.apps import ok
asyncio.run(serve(ok, "127.0.0.1", 0, asyncio.Event(), ready=lambda host, port: print(port, flush=True)))
"""


@pytest.fixture
def few(request: pytest.FixtureRequest) -> Iterator[tuple[int, Path]]:
    """A server of 48 descriptors: its port and its log."""
    log = Path(request.getfixturevalue("tmp_path"), "log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", FEW, request.param], stdout=subprocess.PIPE, stderr=out,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )  # fmt: skip
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), log
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("few", ["as it is", "too many"], indirect=True)
async def test_ib_195_idle_connections_beyond_the_descriptors_stop_nobody(few: tuple[int, Path]) -> None:
    """Below the limit by its own cap; and where descriptors are used up by something else, one event, no flood."""
    port, log = few
    idle = []
    for _ in range(150):
        idle.append(socket.create_connection(("127.0.0.1", port), timeout=20))
    answers = [await said(port, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") for _ in range(5)]
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert log.stat().st_size < 4000 and b"Traceback" not in log.read_bytes()
    for each in idle:
        each.close()
    assert (await said(port, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_a_process_raises_its_soft_limit_of_descriptors() -> None:
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))\n"
        "from idem.outbox.http_server.descriptors import raise_limit, room\n"
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], room(10) < 512 - 10)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 512)
    assert out.split() == [str(hard), str(hard), "True"]


async def test_the_switches_take_metrics_and_the_description_off_the_clients_port(spine: Spine) -> None:
    from fix_api import client

    from idem.outbox.config.http_settings import ApiSettings

    async with client(spine, settings=ApiSettings(port=0, metrics=False, openapi=False)) as one:
        for path in ("/metrics", "/openapi.json"):
            assert (await one.http.get(path)).status_code == 404
        assert (await one.http.get("/readyz")).status_code == 200
