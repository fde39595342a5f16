"""Calls through httpx, where somebody has replaced its transport.

A test of a user does it (respx, pytest-httpx), and what watches a process from inside. Their code stands between us and
the wire then, so that nothing proves that a request was not sent.
"""

import ssl
from typing import Final

import httpcore
import httpx

from idem.outbox.calls.answer import ProviderAnswer
from idem.outbox.calls.request_head import Origin
from idem.outbox.domain.contract import FrozenRequest

_UNTOUCHED: Final = tuple(
    (owner, name, getattr(owner, name))
    for owner, name in (
        (httpx.AsyncClient, "send"),
        (httpx.AsyncClient, "_transport_for_url"),
        (httpx.AsyncHTTPTransport, "handle_async_request"),
        (httpcore.AsyncConnectionPool, "handle_async_request"),
        (httpcore.AsyncHTTPConnection, "handle_async_request"),
        (httpcore.AsyncHTTP11Connection, "handle_async_request"),
    )
)


def replaced() -> bool:
    """Whether calls must go through httpx, because its classes are not what they were when this was loaded."""
    return any(getattr(owner, name, None) is not code for owner, name, code in _UNTOUCHED)


async def exchange(
    answer: ProviderAnswer,
    where: Origin,
    address: str,
    request: FrozenRequest,
    lines: list[tuple[str, str]],
    tls: ssl.SSLContext,
    seconds: float,
) -> None:
    """Make the call once, on a connection of its own. Raises BodyTooLong, and whatever the replaced code raises."""
    transport = httpx.AsyncHTTPTransport(verify=tls, http2=False, retries=0, trust_env=False)
    extensions: dict[str, object] = {"target": request.path.encode("ascii")}
    if where.host != address:
        extensions["sni_hostname"] = where.host
    url = httpx.URL(scheme=where.scheme, host=address, port=where.port, path="/")
    outward = httpx.Request(request.method, url, headers=lines, content=request.body, extensions=extensions)
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=seconds) as client:
        response = await client.send(outward, stream=True, follow_redirects=False)
        try:
            answer.began(response.status_code, response.headers.raw)
            async for piece in response.aiter_raw():
                await answer.add(piece)
        finally:
            await response.aclose()
