"""An HTTP proxy with faults in front of a provider's sandbox; it needs no support by the provider."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, TypeAlias

import httpx

from idem.outbox.calls.http_client import ssl_context

LINE_FAULTS: Final = frozenset(
    {"act_then_drop", "drop_before_acting", "stall", "act_late", "cut_body", "proxy_page", "gateway_page"}
)
LOOK_FAULTS: Final = frozenset({"503", "proxy_page", "cut_body"})

PAGE: Final = (
    b"<html><head><title>Request blocked</title></head><body><h1>Request blocked</h1>"
    b"<p>Reference 18.5e6f7a8b.1764000000.9c0d1e2f</p></body></html>"
)
HELD_BACK: Final = frozenset({"host", "content-length", "connection", "accept-encoding", "transfer-encoding"})

ProxyAnswer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
Rewrite: TypeAlias = Callable[[str, str, ProxyAnswer], ProxyAnswer]
"""What becomes of an answer: method and target of the request, and the answer as the provider gave it."""


class Line:
    """`with Line("https://sandbox.example") as line:` forwards what comes to `line.url`, until `next` says otherwise.

    Loopback only. `rewrite` may change every answer on its way. What it cannot forward is answered 502.
    """

    def __init__(self, target: str, rewrite: Rewrite | None = None) -> None:
        self._target = target.rstrip("/")
        self._rewrite = rewrite
        self._writes: deque[tuple[str, float]] = deque()
        self._lookups: deque[str] = deque()
        self._closing = threading.Event()
        self._client: httpx.Client | None = None
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The origin to give to idem."""
        assert self._server is not None, "the line is not open"
        return f"http://127.0.0.1:{self._server.server_port}"

    def next(self, fault: str, *, late: float = 2.0) -> None:
        """Let the next request that is no GET meet this fault; `late`: seconds after which `act_late` acts."""
        self._writes.append((fault, late))

    def next_look(self, fault: str) -> None:
        """The same for the next GET."""
        self._lookups.append(fault)

    def __enter__(self) -> Self:
        self._client = httpx.Client(base_url=self._target, timeout=60, trust_env=False, verify=tls())
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="idem-line", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        assert self._server is not None and self._client is not None
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def serve(self, request: _Request) -> None:
        """Answer one request, on the thread of its connection."""
        fault, late = "", 0.0
        with suppress(IndexError):
            if request.command in ("GET", "HEAD"):
                fault = self._lookups.popleft()
            else:
                fault, late = self._writes.popleft()
        match fault:
            case "drop_before_acting":
                return request.hang_up()
            case "proxy_page":
                return request.answer((403, [("content-type", "text/html")], PAGE))
            case "503":
                return request.answer((503, [("content-type", "text/plain")], b"upstream unavailable"))
            case "act_late":
                self._closing.wait(late)
        answer = self._forwarded(request)
        match fault:
            case "act_then_drop":
                request.hang_up()
            case "stall" | "act_late":
                self._closing.wait(60)
                request.hang_up()
            case "cut_body":
                request.answer(answer, cut=True)
            case "gateway_page":
                request.answer((502, [("content-type", "text/html")], PAGE))
            case _:
                request.answer(answer)

    def _forwarded(self, request: _Request) -> ProxyAnswer:
        assert self._client is not None
        headers = [(name, text) for name, text in request.headers.items() if name.lower() not in HELD_BACK]
        headers.append(("accept-encoding", "identity"))
        try:
            response = self._client.request(
                request.command, request.path, headers=headers, content=request.content, follow_redirects=False
            )
        except httpx.HTTPError as error:
            return 502, [("content-type", "text/plain")], f"the line cannot reach the provider: {error}".encode()
        answer = response.status_code, list(response.headers.items()), response.content
        return answer if self._rewrite is None else self._rewrite(request.command, request.path, answer)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    line: Line
    content: bytes = b""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        self.content = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.close_connection = True
        with suppress(OSError):
            self.line.serve(self)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def answer(self, answer: ProxyAnswer, *, cut: bool = False) -> None:
        """Send it; `cut`: half of its body, and the line is broken."""
        status, headers, body = answer
        self.send_response_only(status)
        for name, text in headers:
            if name.lower() not in HELD_BACK:
                self.send_header(name, text)
        self.send_header("connection", "close")
        if status >= 200 and status not in (204, 304):
            self.send_header("content-length", str(max(2, len(body)) if cut else len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)

    def hang_up(self) -> None:
        """End the connection without an answer."""
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            self.connection.shutdown(socket.SHUT_RDWR)


@cache
def tls() -> ssl.SSLContext:
    """One for all: loading the certificates takes longer than a call."""
    return ssl_context()


def _handler(line: Line) -> type[_Request]:
    return type("Request", (_Request,), {"line": line})
