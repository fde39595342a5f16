"""Which endpoint answers a request: an ASGI application over a list of paths, and nothing around its endpoints."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Unrouted: TypeAlias = Callable[[Request, HTTPException], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path, a parameter `{name}` being one segment of it, and what answers its methods; GET answers HEAD too."""

    segments: tuple[str, ...]
    methods: frozenset[str]
    endpoint: Endpoint

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The parameters of a path that this one stands for, else None."""
        if len(segments) != len(self.segments):
            return None
        found = {}
        for own, given in zip(self.segments, segments, strict=True):
            if own.startswith("{") and given:
                found[own[1:-1]] = given
            elif own != given:
                return None
        return found


def route(path: str, endpoint: Endpoint, *methods: str) -> Route:
    """The route of this path: `/a/{name}`."""
    return Route(tuple(path.split("/")), frozenset(methods) | ({"HEAD"} if "GET" in methods else set()), endpoint)


class Routes:
    """An ASGI application. A path with another slash is another path: a redirected POST would lose its body.

    `unrouted` answers what no route knows: an HTTPException of status 404, or 405 with `Allow`.
    """

    def __init__(self, routes: Sequence[Route], unrouted: Unrouted) -> None:
        self._routes = tuple(routes)
        self._unrouted = unrouted

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return  # it has no start and no end of its own
        path, root = scope["path"], scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :]
        request, segments = Request(scope, receive, send), path.split("/")
        missing = HTTPException(404)
        for each in self._routes:
            if (found := each.match(segments)) is None:
                continue
            if scope["method"] in each.methods:
                scope["path_params"] = found
                response = await each.endpoint(request)
                break
            missing = HTTPException(405, headers={"Allow": ", ".join(sorted(each.methods))})
        else:
            response = await self._unrouted(request, missing)
        await response(scope, receive, send)


async def not_found(_: Request, error: HTTPException) -> Response:
    """The bare answer to what no route knows."""
    return Response(status_code=error.status_code, headers=error.headers)
