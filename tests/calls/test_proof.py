"""What proves that nothing was sent, and that nothing else does."""

from typing import Any

import httpcore
import httpx
import pytest
import respx
from calls.conftest import does, raising
from calls.exceptions import ALLOWED, exception_classes, made

from idem.outbox.calls import replaced_httpx
from idem.outbox.calls.call_end import Lost, NotSent
from idem.outbox.calls.http_call import NO_CONNECTION
from idem.outbox.domain.contract import Response


class OddConnectError(httpx.ConnectError):
    """A class that nothing of ours raises."""


CLASSES = [*exception_classes(), OddConnectError]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
async def test_every_class_that_is_not_in_the_list_is_lost(
    dial: Any, monkeypatch: pytest.MonkeyPatch, cls: type[BaseException]
) -> None:
    """Raised where a connection is made, so that everything else speaks for "not sent"."""

    async def raises(*args: object) -> None:
        raise made(cls)

    monkeypatch.setattr("idem.outbox.calls.kept_connections.connect", raises)
    result = await dial("http://127.0.0.1:9")
    assert isinstance(result, NotSent if cls in NO_CONNECTION else Lost)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
async def test_the_system_that_makes_no_connection_says_so_by_os_errors_alone(
    dial: Any, monkeypatch: pytest.MonkeyPatch, cls: type[BaseException]
) -> None:
    async def raises(*args: object) -> None:
        raise made(cls)

    monkeypatch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", raises)
    result = await dial("http://127.0.0.1:9")
    assert isinstance(result, NotSent if issubclass(cls, OSError) or cls in NO_CONNECTION else Lost)


async def test_an_exception_whose_causes_form_a_circle_is_lost(dial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    monkeypatch.setattr("idem.outbox.calls.kept_connections.connect", raising(first))
    assert isinstance(await dial("http://127.0.0.1:9"), Lost)


def replaces(owner: type, name: str) -> Any:
    return pytest.param(owner, name, id=f"{owner.__name__}.{name}")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        replaces(httpx.AsyncClient, "send"),
        replaces(httpx.AsyncHTTPTransport, "handle_async_request"),
        replaces(httpcore.AsyncConnectionPool, "handle_async_request"),
    ],
)
async def test_who_replaces_httpx_gets_our_calls_and_nothing_is_proven_by_them(
    dial: Any, drinking: Any, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """What mocks the provider in a test, or watches the process from inside: its word is no proof."""
    assert not replaced_httpx.replaced()
    asked: list[Any] = []

    async def refuses(self: Any, request: Any, *args: Any, **more: Any) -> Any:
        asked.append(request)
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(owner, name, refuses)
    assert replaced_httpx.replaced()
    result = await dial(drinking.origin)
    assert isinstance(result, Lost) and result.seen.started
    assert len(asked) == 1 and drinking.connections == 0


async def test_a_call_that_is_mocked_has_its_last_check(dial: Any) -> None:
    with respx.mock(assert_all_called=False) as router:
        route = router.route().respond(201)
        result = await dial("http://127.0.0.1:9", start=lambda: False)
        assert isinstance(result, NotSent) and result.given_back and not route.called
        result = await dial("http://127.0.0.1:9")
    assert isinstance(result, Response) and (result.status, result.complete) == (201, True)


@pytest.mark.parametrize("using", ["httpx", "httpcore"])
@pytest.mark.parametrize("error", sorted(ALLOWED, key=lambda cls: cls.__name__))
async def test_respx_never_yields_not_sent(dial: Any, using: str, error: type[Exception]) -> None:
    with respx.mock(using=using, assert_all_called=False) as router:
        route = router.route().mock(side_effect=error)
        result = await dial("http://127.0.0.1:9")
    assert route.called
    assert isinstance(result, Lost)


@pytest.mark.parametrize("location", [b"http://127.0.0.1:9/", b"http://[::"], ids=["to a dead server", "to no address"])
async def test_r1_a_redirect_is_an_answer_and_nobody_follows_it(dial: Any, serve: Any, location: bytes) -> None:
    """Followed to a dead server, it would end in a ConnectError that lies: the first server has the whole request."""
    redirects = does(b"HTTP/1.1 307 Temporary\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % location)
    server = await serve(redirects)
    ours = await dial(server.origin)
    assert isinstance(ours, Response) and (ours.status, ours.complete) == (307, True)
    assert len(server.full) == 1


async def test_r3_a_question_for_credentials_is_an_answer_and_sends_no_second_request(dial: Any, serve: Any) -> None:
    asks_for_digest = does(
        b'HTTP/1.1 401 No\r\nWWW-Authenticate: Digest realm="a", nonce="b", qop="auth"\r\nContent-Length: 0\r\n\r\n'
    )
    server = await serve(asks_for_digest)
    result = await dial(server.origin)
    assert isinstance(result, Response) and result.status == 401
    assert len(server.full) == 1
