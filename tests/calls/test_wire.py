"""Each row of the observed table: what a server does, and what may be said of the call afterwards."""

import asyncio
import gzip
import socket
import ssl
from typing import Any

import pytest
from calls.conftest import answers, does

from idem.outbox.calls.call_end import Lost, NotSent
from idem.outbox.domain.contract import FrozenRequest, Response

BIG = FrozenRequest("POST", "/payments", {}, b"x" * 30_000_000)


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_tcp_refused_is_not_sent(dial: Any) -> None:
    result = await dial(f"http://127.0.0.1:{unused_port()}")
    assert isinstance(result, NotSent)
    assert not result.given_back
    assert (result.seen.error, result.seen.note) == ("ConnectError", "no connection: ECONNREFUSED")
    assert result.seen.started is False


async def test_dns_failure_is_not_sent(dial: Any) -> None:
    result = await dial("http://no-such-name.invalid")
    assert isinstance(result, NotSent)
    assert not result.given_back
    assert (result.seen.error, result.seen.started) == ("gaierror", False)


async def test_full_backlog_is_not_sent_although_it_takes_the_whole_connect_timeout(dial: Any) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        waiting = [socket.socket() for _ in range(8)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        try:
            result = await dial(f"http://127.0.0.1:{port}")
        finally:
            for sock in waiting:
                sock.close()
    assert isinstance(result, NotSent) and (result.seen.error, result.given_back) == ("ConnectTimeout", False)


HANDSHAKES = {
    "TLS garbage": (does(b"this is not TLS at all\r\n", read=1), "ConnectError"),
    "FIN in handshake": (does(read=1), "ConnectError"),
    "RST in handshake": (does("reset", read=1), "ConnectError"),
    "TLS server silent": (does(30.0, read=0), "ConnectTimeout"),
}


@pytest.mark.parametrize(("handler", "error"), HANDSHAKES.values(), ids=HANDSHAKES)
async def test_a_tls_handshake_that_fails_is_not_sent(dial: Any, serve: Any, handler: Any, error: str) -> None:
    server = await serve(handler)
    result = await dial(f"https://127.0.0.1:{server.port}")
    assert isinstance(result, NotSent) and (result.seen.error, result.given_back) == (error, False)


async def test_an_untrusted_certificate_is_not_sent(dial: Any, serve: Any, certificate: Any) -> None:
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(certificate)
    server = await serve(answers, tls=ours)
    result = await dial(f"https://127.0.0.1:{server.port}")
    assert isinstance(result, NotSent) and result.seen.note == "no connection: self-signed certificate"
    assert server.full == []


@pytest.mark.parametrize(
    ("version", "kind"),
    [(ssl.TLSVersion.TLSv1_2, NotSent), (ssl.TLSVersion.TLSv1_3, Lost)],
    ids=["mTLS, no client cert, TLS 1.2", "mTLS, no client cert, TLS 1.3"],
)
async def test_a_missing_client_certificate_is_proven_with_tls_1_2_only(
    dial: Any, serve: Any, certificate: Any, version: Any, kind: type
) -> None:
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    ours.load_cert_chain(certificate)
    ours.verify_mode = ssl.CERT_REQUIRED
    ours.minimum_version = ours.maximum_version = version
    server = await serve(answers, tls=ours)
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.check_hostname = False
    result = await dial(f"https://127.0.0.1:{server.port}", tls=trusting)
    assert isinstance(result, kind)
    assert server.full == []


async def never_reads(wire: Any) -> None:
    wire.writer.transport.pause_reading()
    await asyncio.sleep(30)


POST = FrozenRequest("POST", "/payments", {"Idempotency-Key": "k-1"}, b'{"amount": 100}')


LOST = {
    "full request read, then FIN": (does(), POST, 1, {"RemoteProtocolError"}),
    "full request read, then RST": (does("reset"), POST, 1, {"ReadError"}),
    "RST before reading, small body": (does("reset", read=0), POST, 0, {"ReadError"}),
    "RST before reading, 30 MB body": (
        does("reset", read=0), BIG, 0, {"ReadError", "RemoteProtocolError", "WriteError"}
    ),
    "garbage status line": (does(b"HELLO\r\n\r\n"), POST, 1, {"RemoteProtocolError"}),
    "no response": (does(30.0), POST, 1, {"ReadTimeout", "TimeoutError"}),
    "peer never reads, 30 MB": (never_reads, BIG, 0, {"WriteTimeout", "TimeoutError"}),
}  # fmt: skip


@pytest.mark.parametrize(("handler", "request_", "full", "errors"), LOST.values(), ids=LOST)
async def test_bytes_that_may_have_left_are_lost(
    dial: Any, serve: Any, handler: Any, request_: FrozenRequest, full: int, errors: set[str]
) -> None:
    """IB-076 (a) among them; a reset before and after reading cannot be told apart."""
    server = await serve(handler)
    result = await dial(server.origin, request_)
    assert isinstance(result, Lost) and result.seen.error in errors
    assert result.seen.started is True
    assert len(server.full) == full


TRUNCATED = b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{"
KEPT = {
    "201 head, truncated body": (does(TRUNCATED), 201),
    "201 head, body stalls": (does(TRUNCATED, 30.0), 201),
    "201, invalid gzip": (
        does(b"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"), 201
    ),
    "201, a coding that we do not read": (
        does(b"HTTP/1.1 201 Created\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello"), 201
    ),
    "201, a body without an end": (
        does(b"HTTP/1.1 201 Created\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000), 201
    ),
}  # fmt: skip


@pytest.mark.parametrize(("handler", "status"), KEPT.values(), ids=KEPT)
async def test_a_status_is_kept_whatever_becomes_of_the_body(dial: Any, serve: Any, handler: Any, status: int) -> None:
    server = await serve(handler)
    result = await dial(server.origin)
    assert isinstance(result, Response) and (result.status, result.complete) == (status, False)
    assert len(result.body) <= 1 << 20


async def test_a_good_response_is_complete_and_its_headers_are_joined_in_lower_case(dial: Any, serve: Any) -> None:
    answers = does(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\n{}")

    server = await serve(answers)
    result = await dial(server.origin)
    assert result == Response(200, {"x-a": "1, 2", "content-length": "2"}, b"{}", complete=True)


@pytest.mark.parametrize(("size", "complete"), [(1000, True), (2_000_000, False)])
async def test_gzip_that_nobody_asked_for_is_read_within_the_limit(
    dial: Any, serve: Any, size: int, complete: bool
) -> None:
    packed = gzip.compress(b"a" * size)

    answers = does(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)

    server = await serve(answers)
    result = await dial(server.origin)
    assert result.complete is complete
    assert result.body == (b"a" * size if complete else packed)


async def test_an_early_413_is_a_response_or_lost_and_never_not_sent(dial: Any, serve: Any) -> None:
    async def too_large(wire: Any) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        wire.reset()

    server = await serve(too_large)
    result = await dial(server.origin, BIG)
    assert isinstance(result, Lost) or (isinstance(result, Response) and result.status == 413)


async def test_no_proxy_of_the_environment_stands_in_between(
    dial: Any, answering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await dial(answering.origin)).complete
