"""An HTTP proxy with faults in front of a provider's sandbox; it needs no support from the provider."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final, Self, TypeAlias

import httpx

from idem.outbox.calls.tls_settings import ssl_context
from idem.outbox.values.background_loop import BackgroundLoop
from idem.testing.bank.faults import AnswerFault
from idem.testing.bank.server import Server
from idem.testing.bank.wire import Incoming, WireReply

LINE_FAULTS: Final = frozenset(
    {"act_then_drop", "drop_before_acting", "stall", "act_late", "cut_body", "proxy_page", "gateway_page"}
)
LOOKUP_FAULTS: Final = frozenset({"503", "proxy_page", "cut_body"})

PAGE: Final = (
    b"<html><head><title>Request blocked</title></head><body><h1>Request blocked</h1>"
    b"<p>Reference 18.5e6f7a8b.1764000000.9c0d1e2f</p></body></html>"
)
HTML: Final = {"content-type": "text/html"}
TEXT: Final = {"content-type": "text/plain"}
INSTEAD: Final = {
    "drop_before_acting": WireReply(0, b"", {}, AnswerFault.DROPPED),
    "proxy_page": WireReply(403, PAGE, HTML),
    "503": WireReply(503, b"upstream unavailable", TEXT),
}
"""The line's own answers; the provider receives nothing."""
AFTERWARDS: Final = {
    "act_then_drop": AnswerFault.DROPPED,
    "stall": AnswerFault.STALLED,
    "act_late": AnswerFault.STALLED,
    "cut_body": AnswerFault.CUT,
}
"""How the provider's answer is delivered."""
HELD_BACK: Final = frozenset({"host", "content-length", "connection", "accept-encoding", "transfer-encoding"})
LARGEST_BODY: Final = 1 << 26
IDLE_SECONDS: Final = 75.0

ProxyAnswer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
Rewrite: TypeAlias = Callable[[str, str, ProxyAnswer], ProxyAnswer]
"""Changes an answer. It gets the method and target of the request, and the provider's answer."""


class Line:
    """`with Line("https://sandbox.example") as line:` forwards requests to `line.url`, until `next` sets a fault.

    Loopback only. `rewrite` may change every answer. If the line cannot forward a request, it answers 502.
    """

    def __init__(self, target: str, rewrite: Rewrite | None = None) -> None:
        self._target = target.rstrip("/")
        self._rewrite = rewrite
        self._writes: deque[tuple[str, float]] = deque()
        self._lookups: deque[tuple[str, float]] = deque()
        self._server = Server(self, idle_seconds=IDLE_SECONDS, max_body=LARGEST_BODY)

    @property
    def url(self) -> str:
        """The origin to give to idem."""
        return f"http://127.0.0.1:{self._server.port}"

    def next(self, fault: str, *, late: float = 2.0) -> None:
        """Set the fault of the next request that is not a GET; `late`: seconds after which `act_late` acts."""
        self._writes.append((fault, late))

    def next_lookup(self, fault: str) -> None:
        """Set the fault of the next GET."""
        self._lookups.append((fault, 0.0))

    def __enter__(self) -> Self:
        self._client = httpx.AsyncClient(base_url=self._target, timeout=60, trust_env=False, verify=tls())
        self._background = BackgroundLoop("idem-line")
        self._background.call(self._server.start("127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        self._background.call(self._server.stop())
        self._background.call(self._client.aclose())
        self._background.close()

    async def handle(self, incoming: Incoming) -> WireReply:
        """Forward a request, or play the fault that was set."""
        due = self._lookups if incoming.method in ("GET", "HEAD") else self._writes
        fault, late = due.popleft() if due else ("", 0.0)
        if fault in INSTEAD:
            return INSTEAD[fault]
        if fault == "act_late":
            await asyncio.sleep(late)
        status, headers, body = await self._forwarded(incoming)
        if fault == "gateway_page":
            return WireReply(502, PAGE, HTML)
        kept = {name: text for name, text in headers if name.lower() not in HELD_BACK}
        return WireReply(status, body, kept, AFTERWARDS.get(fault, AnswerFault.WHOLE))

    async def cut(self, incoming: Incoming) -> None:
        """Does nothing: an incomplete request is not forwarded."""

    async def _forwarded(self, incoming: Incoming) -> ProxyAnswer:
        headers = {name: text for name, text in incoming.headers.items() if name not in HELD_BACK}
        headers["accept-encoding"] = "identity"
        try:
            response = await self._client.request(
                incoming.method, incoming.target, headers=headers, content=incoming.body, follow_redirects=False
            )
        except httpx.HTTPError as error:
            return 502, list(TEXT.items()), f"the line cannot reach the provider: {error}".encode()
        answer = response.status_code, list(response.headers.items()), response.content
        return answer if self._rewrite is None else self._rewrite(incoming.method, incoming.target, answer)


@cache
def tls() -> ssl.SSLContext:
    """One context for all: loading the certificates takes longer than a call."""
    return ssl_context()
