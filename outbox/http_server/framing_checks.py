"""Checks the framing of a request before the application sees it."""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from starlette.responses import Response

from idem.outbox.http_server.problems import ProblemError
from idem.outbox.observe import telemetry

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, AsgiSend], Awaitable[None]]


class Gate:
    """An ASGI application before another.

    A target in absolute form is the path in it (RFC 9112, 3.2.2). An encoded slash stays one. A request with
    Content-Length and Transfer-Encoding is refused and its connection closed (6.1): two readers of it may see two
    requests.
    """

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        if scope["type"] == "http":
            names = {name for name, _ in scope["headers"]}
            if {b"content-length", b"transfer-encoding"} <= names:
                telemetry.refused_request("framing_invalid")
                answer = ProblemError(
                    "framing_invalid", "Content-Length and Transfer-Encoding were both sent.",
                    headers={"Connection": "close"},
                ).answer()  # fmt: skip
                await Response(answer.body, answer.status, dict(answer.headers))(scope, receive, send)
                return
            _to_origin_form(scope)
            _keep_encoded_slashes(scope)
        await self._app(scope, receive, send)


def _to_origin_form(scope: Scope) -> None:
    raw: bytes = scope["raw_path"]
    scheme, separator, rest = raw.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return
    authority, slash, path = rest.partition(b"/")
    scope["raw_path"] = slash + path or b"/"
    scope["path"] = unquote(scope["raw_path"].decode("ascii", "replace"))
    # The host of the target counts, whatever the header says.
    kept = [(name, value) for name, value in scope["headers"] if name != b"host"]
    scope["headers"] = [(b"host", authority.rpartition(b"@")[2]), *kept]


ENCODED_SLASH = re.compile(b"%2f", re.IGNORECASE)


def _keep_encoded_slashes(scope: Scope) -> None:
    """An encoded slash divides no path (RFC 3986, 2.2): what a proxy before us reads as one segment is one here too."""
    raw: bytes = scope["raw_path"]
    if ENCODED_SLASH.search(raw):
        scope["path"] = unquote(ENCODED_SLASH.sub(b"%252F", raw).decode("ascii", "replace"))
