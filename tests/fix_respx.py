"""Providers below httpx, without a socket: respx answers instead of httpcore's pool, for tests that are not about the
wire.

Above it everything is as in production: the lane, its gate, the last check. calls/test_proof.py tests that such a call
proves nothing about what was not sent.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import httpx
import respx

Answer: TypeAlias = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]
"""The provider's answer to a request; an exception ends the connection."""


@dataclass
class Mocked:
    """A provider, and the requests that it received, as they would be on the wire."""

    origin: str
    requests: list[httpx.Request] = field(default_factory=list)


@contextmanager
def mocking() -> Iterator[Callable[[Answer], Mocked]]:
    """A function that makes a provider with these answers, each at its own origin."""
    with respx.mock(using="httpcore", assert_all_called=False) as router:

        def provider(answer: Answer) -> Mocked:
            address = f"192.0.2.{len(router.routes) + 1}"
            made = Mocked(f"http://{address}")

            async def sent(request: httpx.Request) -> httpx.Response:
                made.requests.append(request)
                said = answer(request)
                return await said if inspect.isawaitable(said) else said

            router.route(host=address).mock(side_effect=sent)
            return made

        yield provider
