"""Calls that follow each other on one connection, over real sockets: which connection may be used again, and that no
request leaves twice."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from calls.conftest import CONTEXT, CONTRACT, OK, POST, Server, Wire, does
from fix_waiting import until

from idem.outbox.calls import kept_connections
from idem.outbox.calls.call_end import Lost, NotSent
from idem.outbox.calls.connection import ProviderConnection
from idem.outbox.calls.kept_connections import KeptConnections
from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import Contract, FrozenRequest, Response
from idem.outbox.values import clock
from idem.outcomes import Absent, Succeeded
from idem.sending import Question

KEPT = Contract("bank", connect_timeout=1.0, deadline=2.0, keep_alive=60.0)


async def keeps(wire: Wire) -> None:
    """Answers every request of a connection."""
    while True:
        await wire.request()
        await wire.say(OK)


@pytest.fixture
def kept() -> KeptConnections:
    return KeptConnections(CONTEXT, 60.0)


def trusting(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    return context


def serving(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def sockets() -> int:
    """The sockets of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            continue
    return found


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_hundred_calls_in_turn_take_one_connection(
    dial: Any, serve: Any, certificate: Path, secure: bool
) -> None:
    server = await serve(keeps, tls=serving(certificate) if secure else None)
    kept = KeptConnections(trusting(certificate) if secure else CONTEXT, 60.0)
    for _ in range(100):
        result = await dial(f"http{'s' if secure else ''}://127.0.0.1:{server.port}", connections=kept)
        assert isinstance(result, Response) and result.complete
    assert (server.connections, len(server.full)) == (1, 100)
    assert len(set(server.full)) == 1, "each time the same bytes"


async def test_calls_and_questions_of_a_lane_share_its_connections(serve: Any, bank: Any) -> None:
    async def handler(wire: Wire) -> None:
        while head := await wire.request():
            missing = b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n"
            await wire.say(missing if head.startswith(b"GET") else OK)

    server = await serve(handler)
    lane = Lane(bank(server.origin, contract=KEPT), bank(server.origin).account, slots=4, margin=0.5)
    ends = clock.boottime() + 60

    async def both(number: int) -> tuple[Any, Any]:
        sent = await lane.send(number, POST, lease_ends=ends, start=lambda: True)
        return sent[0], (await lane.ask(Question("key-1", None, False), lease_ends=ends))[0]

    for result in await asyncio.gather(*(both(number) for number in range(40))):
        assert result == (Succeeded("p-1"), Absent())
    assert len(server.full) == 80
    assert server.connections == 4
    await lane.close()


async def test_without_keep_alive_every_call_has_a_connection_of_its_own(dial: Any, serve: Any) -> None:
    """IB-076 (b): the setting for a provider that closes idle connections at once."""
    server = await serve(keeps)
    kept = KeptConnections(CONTEXT, 0.0)
    for _ in range(5):
        assert (await dial(server.origin, connections=kept)).complete
    assert server.connections == len(server.full) == 5
    assert all(b"\r\nConnection: close\r\n" in request for request in server.full)


CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
NOT_KEPT: dict[str, bytes] = {
    "Connection: close": OK.replace(b"Created\r\n", b"Created\r\nConnection: close\r\n"),
    "HTTP/1.0": OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0 that says keep-alive": OK.replace(b"HTTP/1.1 201 Created", b"HTTP/1.0 201 X\r\nConnection: keep-alive"),
    "1xx before the answer": b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK,
    "bytes after the answer": OK + b"\r\n",
    "a second answer": OK + OK,
    "bytes after the last chunk": CHUNKED + b"x",
    "two lengths": CHUNKED.replace(b"\r\n\r\n2", b"\r\nContent-Length: 2\r\n\r\n2"),
    "Keep-Alive: timeout=0": OK.replace(b"Created\r\n", b"Created\r\nKeep-Alive: timeout=0\r\n"),
    "a coding that is not read": b"HTTP/1.1 201 X\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
    "a body beyond the limit": b"HTTP/1.1 201 X\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000,
    "a length where there is no body": b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    "a body that is cut": OK.replace(b"Length: 13", b"Length: 14"),
}


def always(answer: bytes) -> Callable[[Wire], Awaitable[None]]:
    """A server that gives this answer to each request of a connection."""

    async def handler(wire: Wire) -> None:
        while await wire.request():
            await wire.say(answer)

    return handler


@pytest.mark.parametrize("answer", NOT_KEPT.values(), ids=NOT_KEPT)
async def test_a_connection_is_not_used_again_after(
    dial: Any, serve: Any, kept: KeptConnections, answer: bytes
) -> None:
    """Though its server would take another request."""
    server = await serve(always(answer))
    for _ in range(2):
        result = await dial(server.origin, connections=kept, contract=CONTRACT)
        assert isinstance(result, Response)
    assert (server.connections, len(server.full)) == (2, 2)


KEPT_AFTER: dict[str, tuple[FrozenRequest, bytes]] = {
    "chunks": (POST, CHUNKED),
    "no content": (POST, b"HTTP/1.1 204 No Content\r\n\r\n"),
    "another method": (FrozenRequest("PUT", "/payments/1", {}, b"{}"), OK),
    "a refusal": (POST, b"HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}"),
}


@pytest.mark.parametrize(("request_", "answer"), KEPT_AFTER.values(), ids=KEPT_AFTER)
async def test_a_connection_is_used_again_after(
    dial: Any, serve: Any, kept: KeptConnections, request_: FrozenRequest, answer: bytes
) -> None:
    server = await serve(always(answer))
    for _ in range(3):
        assert (await dial(server.origin, request_, connections=kept)).complete
    assert (server.connections, len(server.full)) == (1, 3)


def ends(how: str) -> Callable[[Wire], Any]:
    """A server that answers once, and then ends its connection so, without a word before."""

    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await asyncio.sleep(0.05)
        if wire.server.connections > 1:
            await wire.reader.read()
        elif how == "reset":
            wire.reset()
        elif how == "408":
            await wire.say(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            await wire.reader.read()

    return handler


@pytest.mark.parametrize("seen_by", ["the loop", "the last look"])
@pytest.mark.parametrize("how", ["closed", "reset", "408"])
async def test_a_connection_that_ended_while_it_was_idle_costs_nothing(
    dial: Any, serve: Any, kept: KeptConnections, how: str, seen_by: str
) -> None:
    """The call goes out on a new one, once. The last look asks the system, where the loop has not been told yet."""
    server = await serve(ends(how))
    assert (await dial(server.origin, connections=kept)).complete
    (waiting,) = kept._waiting
    assert waiting.quiet and waiting._transport is not None
    if seen_by == "the last look":
        waiting._transport.pause_reading()
    await until(lambda: not waiting.quiet)
    await asyncio.sleep(0)
    assert waiting.ended is (seen_by == "the loop")
    result = await dial(server.origin, connections=kept)
    assert isinstance(result, Response) and result.complete
    assert (server.connections, len(server.full)) == (2, 2)


@pytest.mark.parametrize("how", ["closes", "resets", "answers garbage", "is silent"])
async def test_a_failure_after_the_first_byte_on_a_used_connection_is_lost_and_nothing_is_sent_again(
    dial: Any, serve: Any, kept: KeptConnections, how: str
) -> None:
    """It cannot be told from a server that has read the request and then died."""

    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await wire.request()
        if how == "resets":
            wire.reset()
        elif how == "answers garbage":
            await wire.say(b"HELLO\r\n\r\n")
        elif how == "is silent":
            await asyncio.sleep(30)

    server = await serve(handler)
    assert (await dial(server.origin, connections=kept)).complete
    result = await dial(server.origin, connections=kept, contract=Contract("bank", deadline=0.5))
    assert isinstance(result, Lost) and result.seen.started is True
    assert (server.connections, len(server.full)) == (1, 2)


async def test_a_server_that_closes_at_the_moment_of_the_first_byte_makes_the_call_lost(
    dial: Any, serve: Any, kept: KeptConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reuse adds: nobody has read the request, and nothing proves it."""
    closing = asyncio.Event()

    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await closing.wait()
        wire.reset()

    ask = ProviderConnection.ask

    def asks(self: ProviderConnection, *given: Any) -> None:
        closing.set()
        ask(self, *given)

    server = await serve(handler)
    assert (await dial(server.origin, connections=kept)).complete
    monkeypatch.setattr(ProviderConnection, "ask", asks)
    result = await dial(server.origin, connections=kept)
    assert isinstance(result, Lost) and result.seen.started is True
    assert (server.connections, len(server.full)) == (1, 1)


async def test_a_connection_that_ended_while_the_start_was_marked_is_replaced_and_the_mark_made_once(
    dial: Any, serve: Any, kept: KeptConnections
) -> None:
    server = await serve(ends("closed"))
    marks: list[int] = []

    async def mark() -> bool:
        marks.append(server.connections)
        await asyncio.wait_for(server.done.wait(), 10)
        await asyncio.sleep(0.1)
        return True

    assert (await dial(server.origin, connections=kept)).complete
    result = await dial(server.origin, connections=kept, mark_start=mark)
    assert isinstance(result, Response) and result.complete
    assert (marks, server.connections, len(server.full)) == ([1], 2, 2)


async def test_a_lease_that_got_too_short_while_a_connection_was_made_again_is_given_back(
    dial: Any, serve: Any, kept: KeptConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 1: the check is made again after the new connection."""
    server = await serve(ends("closed"))
    assert (await dial(server.origin, connections=kept)).complete
    monkeypatch.setattr(ProviderConnection, "quiet", property(lambda _: False))
    monkeypatch.setattr(kept_connections, "_fresh", lambda *_: True)
    ahead = [0.0]
    real, connect = clock.boottime, kept_connections.connect

    async def slow(*given: Any) -> ProviderConnection:
        made = await connect(*given)
        ahead[0] = 59.0
        return made

    monkeypatch.setattr(clock, "boottime", lambda: real() + ahead[0])
    monkeypatch.setattr(kept_connections, "connect", slow)
    result = await dial(server.origin, connections=kept)
    assert isinstance(result, NotSent) and result.given_back
    assert (server.connections, len(server.full)) == (2, 1)


async def test_a_server_that_went_away_is_not_sent(dial: Any, serve: Any, kept: KeptConnections) -> None:
    """The kept connection is over and no new one can be made: proven, on a reused connection too."""
    server = await serve(ends("closed"))
    assert (await dial(server.origin, connections=kept)).complete
    server.listening.close()
    await asyncio.wait_for(server.done.wait(), 10)
    result = await dial(server.origin, connections=kept)
    assert isinstance(result, NotSent) and (result.seen.error, result.given_back) == ("ConnectError", False)
    assert len(server.full) == 1


async def test_a_new_connection_that_speaks_first_or_ends_before_the_request_is_not_sent(dial: Any, serve: Any) -> None:
    """While the start was marked: the loop has been told, and no byte was given to the socket."""

    async def mark() -> bool:
        await asyncio.sleep(0.1)
        return True

    for step in (b"HTTP/1.1 408 Too late\r\n\r\n", b""):
        server: Server = await serve(does(step, read=0))
        result = await dial(server.origin, mark_start=mark)
        assert isinstance(result, NotSent) and (result.seen.error, result.given_back) == ("ConnectError", False)


async def test_nothing_stays_open_after_the_bound(serve: Any, bank: Any) -> None:
    """A lane of 100 slots that becomes idle keeps no socket."""
    server = await serve(keeps)
    before = sockets()
    short = Contract("bank", keep_alive=0.3)
    lane = Lane(bank(server.origin, contract=short), bank(server.origin).account, slots=100, margin=0.5)
    ends = clock.boottime() + 60
    sent = await asyncio.gather(
        *(lane.send(number, POST, lease_ends=ends, start=lambda: True) for number in range(100))
    )
    assert all(outcome == Succeeded("p-1") for outcome, _ in sent)
    await until(lambda: sockets() == before)
    assert 1 < server.connections <= 100
    await lane.close()


async def test_what_is_older_than_the_bound_is_not_used_though_the_machine_slept(
    dial: Any, serve: Any, kept: KeptConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's clock stood still meanwhile, the server's did not."""
    server = await serve(keeps)
    real, ahead = clock.boottime, [0.0]
    monkeypatch.setattr(clock, "boottime", lambda: real() + ahead[0])
    assert (await dial(server.origin, connections=kept)).complete
    ahead[0] = 61.0
    assert (await dial(server.origin, connections=kept)).complete
    assert server.connections == 2


async def test_an_old_connection_is_not_kept_so_that_the_name_is_followed(
    dial: Any, serve: Any, kept: KeptConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(keeps)
    real, ahead = clock.boottime, [0.0]
    monkeypatch.setattr(clock, "boottime", lambda: real() + ahead[0])
    for seconds in (0.0, kept_connections.OLDEST - 1, kept_connections.OLDEST + 1, kept_connections.OLDEST + 2):
        ahead[0] = seconds
        assert (await dial(server.origin, connections=kept)).complete
    assert server.connections == 2


async def test_the_server_s_own_word_shortens_the_bound(
    dial: Any, serve: Any, kept: KeptConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(always(OK.replace(b"Created\r\n", b"Created\r\nKeep-Alive: max=100, timeout=5\r\n")))
    real, ahead = clock.boottime, [0.0]
    monkeypatch.setattr(clock, "boottime", lambda: real() + ahead[0])
    for seconds, connections in ((0.0, 1), (2.0, 1), (5.0, 2)):
        ahead[0] = seconds
        assert (await dial(server.origin, connections=kept)).complete
        assert server.connections == connections


async def test_another_origin_gets_a_connection_of_its_own(dial: Any, serve: Any, kept: KeptConnections) -> None:
    first, second = await serve(keeps), await serve(keeps)
    for server in (first, second, first):
        assert (await dial(server.origin, connections=kept)).complete
    assert (len(first.full), len(second.full)) == (2, 1)


async def test_closing_closes_what_waits_and_what_comes_back(dial: Any, serve: Any, kept: KeptConnections) -> None:
    async def handler(wire: Wire) -> None:
        while await wire.request():
            await asyncio.sleep(0.2)
            await wire.say(OK)

    server = await serve(handler)
    before = sockets()
    assert (await dial(server.origin, connections=kept)).complete
    running = asyncio.create_task(dial(server.origin, connections=kept))
    await until(lambda: len(server.full) == 2)
    kept.close()
    assert (await running).complete
    await until(lambda: sockets() == before)
