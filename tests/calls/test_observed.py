"""What a call may meet beyond a plain server: TLS that breaks, gateways, and exceptions that nobody has heard of.

With the cases of `test_wire`, `test_proof` and `test_deadline` this is every row that was observed of a call.
"""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import fix_server
import httpx
import pytest
from calls.conftest import does
from calls.exceptions import ALLOWED, exception_classes, made
from fix_waiting import stopping
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.calls.call_end import Lost
from idem.outbox.calls.connection import ProviderConnection
from idem.outbox.calls.lane import Lane
from idem.outbox.calls.tls_settings import ssl_context
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


async def test_a_reset_over_tls_is_lost(dial: Any, serve: Any, certificate: Any) -> None:
    server = await serve(does("reset"), tls=serving(certificate))
    ended = await dial(f"https://127.0.0.1:{server.port}", tls=trusting(certificate))
    assert len(server.full) == 1 and server.full[0].startswith(b"POST ")
    assert isinstance(ended, Lost) and ended.seen.error in {"ReadError", "RemoteProtocolError"}
    assert ended.seen.started is True


async def test_a_gateway_that_answers_502_is_ambiguous(dial: Any, serve: Any) -> None:
    """Nobody knows whether it has handed the request on."""
    server = await serve(does(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"))
    ended = await dial(server.origin)
    assert isinstance(ended, Response) and (ended.status, ended.complete) == (502, True)
    outcome, _ = HttpProvider(CONTRACT, {}).classify(ended)
    assert outcome == Ambiguous()


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


async def test_r2_a_connection_lets_one_request_through_before_its_answer(dial: Any, serve: Any) -> None:
    asked: list[ProviderConnection] = []

    async def handler(wire: Any) -> None:
        await wire.request()
        with pytest.raises(RuntimeError, match="asked twice"):
            asked[0].ask("POST", b"POST / HTTP/1.1\r\n\r\n", 1.0)
        await wire.say(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")
        await wire.reader.read()

    ask = ProviderConnection.ask

    def remembered(self: ProviderConnection, *given: Any) -> None:
        asked.append(self)
        ask(self, *given)

    server = await serve(handler)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ProviderConnection, "ask", remembered)
        ended = await dial(server.origin)
    assert isinstance(ended, Response) and ended.complete
    assert len(server.full) == 1


@pytest.mark.parametrize("at", ["ask", "read"])
async def test_whatever_is_raised_after_the_request_began_is_lost(
    dial: Any, answering: Any, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The classes that prove something before the first byte prove nothing after it."""
    for cls in exception_classes():

        def raises(*args: object, cls: type[BaseException] = cls) -> Any:
            raise made(cls)

        monkeypatch.setattr(ProviderConnection, at, raises)
        ended = await dial(answering.origin)
        assert isinstance(ended, Lost), cls
        assert ended.seen.started is True, cls


# A subclass of a class that counts is nobody's.
BASES = [Exception, BaseException, OSError, RuntimeError, httpx.HTTPError, *sorted(ALLOWED, key=str)]


def unheard_of() -> Iterator[type[BaseException]]:
    for base in BASES:
        yield type(f"Odd{base.__name__}", (base,), {})


@given(
    cls=st.sampled_from(list(unheard_of())),
    where=st.sampled_from(["connect", "ask", "read"]),
    grouped=st.booleans(),
)
def test_every_other_exception_is_ambiguous(cls: type[BaseException], where: str, grouped: bool) -> None:
    """Through the lane, to the outcome that settles the row: a class that nobody listed, or a group of them."""

    def raises(*args: object) -> Any:
        raise BaseExceptionGroup("told", [made(cls)]) if grouped else made(cls)

    async def sent() -> Any:
        async with fix_server.serving(lambda _: None) as url:
            account = Account("main", url)
            lane = Lane(HttpProvider(CONTRACT, {"main": account}), account, slots=1, margin=0.5, tls=CONTEXT)
            async with stopping(lane):
                with pytest.MonkeyPatch.context() as patched:
                    owner = "kept_connections" if where == "connect" else "connection.ProviderConnection"
                    patched.setattr(f"idem.outbox.calls.{owner}.{where}", raises)
                    return await lane.send("row", POST, lease_ends=clock.boottime() + 60, start=lambda: True)

    outcome, seen = asyncio.run(sent())
    assert outcome == Ambiguous(), seen
