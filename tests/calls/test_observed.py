"""What a call may meet beyond a plain server: proxies, TLS that breaks, requests that h11 refuses, a second send.

With the cases of `test_wire`, `test_proof` and `test_deadline` this is every row that was observed of httpx.
"""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import anyio
import fix_server
import httpx
import pytest
from calls.conftest import does
from calls.exceptions import ALLOWED, exception_classes, made
from fix_waiting import stopping
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.calls.call_end import Lost
from idem.outbox.calls.http_call import Recorder, SecondSend
from idem.outbox.calls.http_client import ssl_context, stock_client
from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import Account, Contract, FrozenRequest, Response
from idem.outbox.providers.http import HttpProvider
from idem.outbox.values import clock
from idem.outcomes import Ambiguous

CONTEXT = ssl_context()
CONTRACT = Contract("bank", connect_timeout=1.0, deadline=2.0)
POST = FrozenRequest("POST", "/payments", {"Idempotency-Key": "k-1"}, b'{"amount": 100}')


def serving(certificate: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


def trusting(certificate: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    return context


def over(proxy: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(proxy=proxy, verify=CONTEXT), trust_env=False)


BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
ROWS: dict[str, tuple[Any, str, list[tuple[str, str]], bytes | None, Any]] = {
    "same over TLS, RST": ("reset", "tls", [], b"POST ", {"ReadError", "RemoteProtocolError"}),
    "CONNECT hangs": (30.0, "https through a proxy", [], b"CONNECT ", {"ReadTimeout", "TimeoutError"}),
    # Like a 502 of the provider itself: nobody knows whether it was handed on.
    "plain-http forward proxy 502": (BAD_GATEWAY, "http through a proxy", [], b"POST ", 502),
    # Refused by us long before; h11 would refuse it too, after the request has begun.
    "illegal header value": (30.0, "http", [("Host", "x"), ("X-A", "a\x00b")], None, {"LocalProtocolError"}),
    "Content-Length mismatch": (30.0, "http", [("Host", "x"), ("Content-Length", "3")], None, {"LocalProtocolError"}),
}
"""What the server does, how it is reached, the headers in place of ours, what it gets, and how the call ends."""


@pytest.mark.parametrize("row", ROWS)
async def test_the_row(dial: Any, serve: Any, certificate: Any, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    step, way, headers, got, ends = ROWS[row]
    if headers:
        monkeypatch.setattr("idem.outbox.calls.http_client.head", lambda *_: headers)
    server = await serve(does(step), tls=serving(certificate) if way == "tls" else None)
    if "proxy" in way:
        ended = await dial(f"{way.partition(' ')[0]}://127.0.0.1:9", client=over(server.origin))
    elif way == "tls":
        ended = await dial(f"https://127.0.0.1:{server.port}", tls=trusting(certificate))
    else:
        ended = await dial(server.origin)
    assert len(server.full) == (got is not None) and (got is None or server.full[0].startswith(got))
    if isinstance(ends, int):
        assert isinstance(ended, Response) and (ended.status, ended.complete) == (ends, True)
        outcome, _ = HttpProvider(CONTRACT, {}).classify(ended)
        assert outcome == Ambiguous()
    else:
        assert isinstance(ended, Lost), ended
        assert (ended.seen.started, ended.seen.error in ends) == (True, True), ended


async def test_socks_garbage_is_lost_by_its_class(dial: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row's `socksio.ProtocolError`: a class that is not httpx's, raised before any header was begun."""
    server = await serve(does(b"\x04\xff\x00\x00", read=3))

    class ProtocolError(Exception):
        """Malformed reply."""

    async def connects(self: Any, host: str, port: int, **more: Any) -> Any:
        stream = await anyio.connect_tcp(host, port)
        await stream.send(b"\x05\x01\x00")
        if not (await stream.receive()).startswith(b"\x05"):
            await stream.aclose()
            raise ProtocolError

    monkeypatch.setattr("httpcore._backends.auto.AutoBackend.connect_tcp", connects)
    ended = await dial(server.origin)
    assert isinstance(ended, Lost) and ended.seen.error == "ProtocolError"


async def test_r2_a_server_that_offers_http2_is_spoken_to_in_http1(dial: Any, serve: Any, certificate: Any) -> None:
    """HTTP/2 may send a request twice by itself; it is not even offered."""
    spoken: list[str | None] = []

    async def answers(wire: Any) -> None:
        spoken.append(wire.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await wire.request()
        await wire.say(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")

    ours = serving(certificate)
    ours.set_alpn_protocols(["h2", "http/1.1"])
    server = await serve(answers, tls=ours)
    ended = await dial(f"https://127.0.0.1:{server.port}", tls=trusting(certificate))
    assert isinstance(ended, Response) and ended.complete
    assert spoken == ["http/1.1"]
    assert len(server.full) == 1 and b" HTTP/1.1\r\n" in server.full[0]


class SendsAgain(httpx.AsyncHTTPTransport):
    """Does what HTTP/2 does after a GOAWAY, and so many retry wrappers: the request once more, on a new connection."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await super().handle_async_request(request)
        except httpx.TransportError:
            return await super().handle_async_request(request)


@pytest.mark.parametrize("alive", [True, False], ids=["the server lives", "the second connection is refused"])
async def test_r2_a_second_send_by_the_transport_is_stopped_and_never_not_sent(
    dial: Any, serve: Any, alive: bool
) -> None:
    """The second connection's `ConnectError` would be a lie: the first one took the whole request."""

    async def dies(wire: Any) -> None:
        if server.connections > 1:
            await wire.request()
            await wire.say(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")
            return
        await wire.request()
        if not alive:
            server.listening.close()

    server = await serve(dies)
    client = httpx.AsyncClient(transport=SendsAgain(trust_env=False), trust_env=False)
    ended = await dial(server.origin, client=client)
    assert isinstance(ended, Lost), ended
    assert ended.seen.started is True
    assert len(server.full) == 1
    assert server.connections == (2 if alive else 1)


async def test_r2_the_recorder_lets_one_head_through() -> None:
    recorder = Recorder(
        lease_ends=clock.boottime() + 60, needed=1, margin=1, start=lambda: True, mark_start=None, body=True
    )
    info = {"request": httpx.Request("POST", "http://api.test")}
    info["request"].method = b"POST"  # type: ignore[assignment]  # as httpcore has it
    await recorder("http11.send_request_headers.started", info)
    with pytest.raises(SecondSend):
        await recorder("http2.send_request_headers.started", info)


@pytest.mark.parametrize(("stage", "at"), [("send", "write"), ("receive", "read")], ids=["send", "receive"])
async def test_whatever_is_raised_after_the_request_began_is_lost(
    dial: Any, answering: Any, monkeypatch: pytest.MonkeyPatch, stage: str, at: str
) -> None:
    """The classes that prove something before the first byte prove nothing after it."""
    client = stock_client(CONTEXT, CONTRACT)
    for cls in exception_classes():

        async def raises(*args: object, cls: type[BaseException] = cls, **more: object) -> Any:
            raise made(cls)

        monkeypatch.setattr(f"httpcore._backends.anyio.AnyIOStream.{at}", raises)
        ended = await dial(answering.origin, client=client)
        assert isinstance(ended, Lost), cls
        assert ended.seen.started is True, cls


# A subclass of httpcore's own is one of httpx's that count, after its mapping; one of httpx's is nobody's.
BASES = [Exception, BaseException, OSError, RuntimeError, httpx.HTTPError, *sorted(ALLOWED, key=str)]


def unheard_of() -> Iterator[type[BaseException]]:
    for base in BASES:
        yield type(f"Odd{base.__name__}", (base,), {})


@given(
    cls=st.sampled_from(list(unheard_of())),
    where=st.sampled_from(["connect_tcp", "write", "read"]),
    grouped=st.booleans(),
)
def test_every_other_exception_is_ambiguous(cls: type[BaseException], where: str, grouped: bool) -> None:
    """Through the lane, to the outcome that settles the row: a class that nobody listed, or a group of them."""

    async def raises(*args: object, **more: object) -> Any:
        raise BaseExceptionGroup("told", [made(cls)]) if grouped else made(cls)

    async def sent() -> Any:
        async with fix_server.serving(lambda _: None) as url:
            account = Account("main", url)
            lane = Lane(HttpProvider(CONTRACT, {"main": account}), account, slots=1, margin=0.5, tls=CONTEXT)
            async with stopping(lane):
                with pytest.MonkeyPatch.context() as patched:
                    owner = "auto.AutoBackend" if where == "connect_tcp" else "anyio.AnyIOStream"
                    patched.setattr(f"httpcore._backends.{owner}.{where}", raises)
                    return await lane.send("row", POST, lease_ends=clock.boottime() + 60, start=lambda: True)

    outcome, seen = asyncio.run(sent())
    assert outcome == Ambiguous(), seen
