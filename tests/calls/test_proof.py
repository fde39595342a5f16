"""What proves that nothing was sent, and that nothing else does."""

import asyncio
from typing import Any

import httpcore
import httpx
import pytest
import respx
from calls.conftest import does, raising
from calls.exceptions import ALLOWED, exception_classes, made
from fix_waiting import until

from idem.outbox.calls.call_end import Lost, NotSent
from idem.outbox.calls.http_call import Recorder, proves_not_sent
from idem.outbox.calls.http_client import is_stock, ssl_context, stock_client
from idem.outbox.domain.contract import Contract, Response

CONTRACT = Contract("bank", connect_timeout=1.0, deadline=2.0)
CONTEXT = ssl_context()
MAPPED = {
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
}


class OddConnectError(httpx.ConnectError):
    """A class that httpx does not raise itself."""


@pytest.mark.parametrize(
    "cls", [*exception_classes(), OddConnectError], ids=lambda cls: f"{cls.__module__}.{cls.__name__}"
)
async def test_every_class_that_is_not_in_the_list_is_lost(
    dial: Any, monkeypatch: pytest.MonkeyPatch, cls: type[BaseException]
) -> None:
    """Raised where a connection is made, so that everything else speaks for "not sent"."""

    async def raises(*args: object, **kwargs: object) -> None:
        raise made(cls)

    monkeypatch.setattr("httpcore._backends.auto.AutoBackend.connect_tcp", raises)
    result = await dial("http://127.0.0.1:9")
    assert isinstance(result, NotSent if cls in ALLOWED | MAPPED else Lost)


async def test_an_exception_whose_causes_form_a_circle_is_lost(dial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    monkeypatch.setattr("httpcore._backends.auto.AutoBackend.connect_tcp", raising(first))
    assert isinstance(await dial("http://127.0.0.1:9"), Lost)


@pytest.mark.parametrize("stock", [True, False])
@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("released", [True, False])
def test_class_and_trace_and_transport_must_agree(released: bool, shown: bool, stock: bool) -> None:
    recorder = Recorder(lease_ends=0, needed=0, margin=0, start=lambda: True, mark_start=None, body=True)
    recorder.released, recorder.no_connection = released, shown
    client = stock_client(CONTEXT, CONTRACT)
    client.follow_redirects = not stock
    silent = {httpx.PoolTimeout, httpx.UnsupportedProtocol}
    for cls in [*exception_classes(), OddConnectError]:
        expected = cls in ALLOWED and not released and stock and (shown or cls in silent)
        assert proves_not_sent(made(cls), recorder, client) == expected, cls


async def test_our_own_client_is_stock_and_has_http2_off() -> None:
    """R2: HTTP/2 sends a request again by itself, so it stays off."""
    client = stock_client(CONTEXT, CONTRACT)
    assert is_stock(client)
    assert client._transport._pool._http2 is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "client",
    [
        httpx.AsyncClient(transport=httpx.MockTransport(lambda request: httpx.Response(200))),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(), follow_redirects=True, trust_env=False),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(), auth=("a", "b"), trust_env=False),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=1), trust_env=False),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(), trust_env=True),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(), trust_env=False, mounts={"http://": None}),
        httpx.AsyncClient(transport=type("Own", (httpx.AsyncHTTPTransport,), {})(), trust_env=False),
    ],
    ids=["mock", "redirects", "auth", "retries", "environment", "mounts", "subclass"],
)
def test_any_other_client_proves_nothing(client: httpx.AsyncClient) -> None:
    assert not is_stock(client)


async def test_a_mock_transport_never_yields_not_sent(dial: Any) -> None:
    def refuses(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    client = httpx.AsyncClient(transport=httpx.MockTransport(refuses), trust_env=False)
    assert isinstance(await dial("http://127.0.0.1:9", client=client), Lost)


@pytest.mark.parametrize("using", ["httpx", "httpcore"])
@pytest.mark.parametrize("error", sorted(ALLOWED, key=lambda cls: cls.__name__))
async def test_respx_never_yields_not_sent(dial: Any, using: str, error: type[Exception]) -> None:
    """It replaces the pool under a transport whose type is the stock one."""
    with respx.mock(using=using, assert_all_called=False) as router:
        route = router.route().mock(side_effect=error)
        result = await dial("http://127.0.0.1:9")
    assert route.called
    assert isinstance(result, Lost)


async def test_r1_a_redirect_to_a_dead_server_is_not_not_sent(dial: Any, serve: Any) -> None:
    """The class alone, ConnectError, would be a lie: the first server has the whole request."""

    redirects = does(b"HTTP/1.1 307 Temporary\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")

    server = await serve(redirects)
    client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(), follow_redirects=True, trust_env=False)
    result = await dial(server.origin, client=client)
    assert len(server.full) == 1
    assert isinstance(result, Response) and (result.status, result.complete) == (307, False)
    ours = await dial(server.origin)
    assert isinstance(ours, Response) and (ours.status, ours.complete) == (307, True)
    assert len(server.full) == 2


async def test_r3_an_authentication_flow_sends_no_second_request(dial: Any, serve: Any) -> None:
    asks_for_digest = does(
        b'HTTP/1.1 401 No\r\nWWW-Authenticate: Digest realm="a", nonce="b", qop="auth"\r\nContent-Length: 0\r\n\r\n'
    )

    server = await serve(asks_for_digest)
    client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(), auth=httpx.DigestAuth("a", "b"), trust_env=False)
    result = await dial(server.origin, client=client)
    assert not isinstance(result, NotSent)
    assert len(server.full) == 1


async def test_an_exhausted_pool_is_not_sent(dial: Any, drinking: Any) -> None:
    client = stock_client(CONTEXT, CONTRACT)
    holding = asyncio.create_task(dial(drinking.origin, client=client))
    await until(lambda: drinking.stray)
    result = await dial(drinking.origin, client=client)
    assert isinstance(result, NotSent) and result.seen.error == "PoolTimeout"
    assert isinstance(await holding, Lost)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n", NotSent), (b"", Lost)],
    ids=["CONNECT answered 502", "CONNECT answered by FIN"],
)
async def test_a_proxy_that_refuses_to_connect_is_not_sent(dial: Any, serve: Any, reply: bytes, kind: type) -> None:
    """CONNECT is not our request; a proxy that closes instead is lost by its class."""

    proxy = does(reply)

    server = await serve(proxy)
    transport = httpx.AsyncHTTPTransport(proxy=server.origin, verify=CONTEXT)
    client = httpx.AsyncClient(transport=transport, trust_env=False)
    result = await dial("https://127.0.0.1:9", client=client)
    assert isinstance(result, kind)
    assert server.full[0].startswith(b"CONNECT ")
