"""Events received by the user's own application: an application to mount, and a function for an endpoint of theirs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from idem.outbox.api.responses import response
from idem.outbox.config.http_settings import EndpointSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.http_server.body_memory import BodyMemory, Reservation, full
from idem.outbox.http_server.problems import ProblemError
from idem.outbox.http_server.routing import Routes
from idem.outbox.settle.answer_rendering import Renderer
from idem.reconciler.webhooks import endpoint
from idem.reconciler.webhooks.check_queue import checked
from idem.reconciler.webhooks.ingest import ingest

RequestHeaders: TypeAlias = Mapping[str, str] | Sequence[tuple[bytes, bytes]]
OpenDatabase: TypeAlias = Callable[[], Awaitable[Database]]
Elsewhere: TypeAlias = Callable[[Coroutine[Any, Any, list[Any]]], Awaitable[list[Any]]]
"""Runs something on another event loop, and gives its result to this one."""


async def receive(
    database: Database,
    catalogue: Catalogue,
    renderer: Renderer,
    provider: str,
    headers: RequestHeaders,
    body: bytes,
    account: str | None,
) -> str:
    """Verify the bytes of a delivery and do what it says; what became of it, of a batch in the order of its events.

    Raises WebhookRefused for what is not genuine, and what an unreachable database raises.
    """
    deliveries = await checked(catalogue, provider, account, _raw(headers), body, time.time())
    return ", ".join([await ingest(database, catalogue, renderer, delivery) for delivery in deliveries])


def _raw(headers: RequestHeaders) -> Sequence[tuple[bytes, bytes]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(_bytes(name).lower(), _bytes(value)) for name, value in pairs]


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")


@dataclass(eq=False, repr=False)
class Mounted:
    """An ASGI application for `mount("/webhooks", …)`.

    The body is read on the server's loop, everything else happens on idem's own (`elsewhere`): a server's start and end
    are not told to what is mounted, and connections must not keep its loop from ending.
    """

    opened: OpenDatabase
    elsewhere: Elsewhere
    catalogue: Catalogue
    settings: EndpointSettings

    def __post_init__(self) -> None:
        self._app: Any = None
        self._memory = BodyMemory(self.settings.max_unverified)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        try:
            with self._memory.held() as held:
                messages = await self._read(receive, held)
                parts = await self.elsewhere(self._answer(scope, messages))
        except ProblemError as problem:
            await response(problem.answer())(scope, receive, send)
            return
        for message in parts:
            await send(message)

    async def _read(self, receive: Any, held: Reservation) -> list[Any]:
        """What the sender says, as far as it may be of use: one byte more than allowed says that it is too much.

        Raises ProblemError.
        """
        kept, others, more = bytearray(), [], True
        try:
            async with asyncio.timeout(self.settings.read_timeout) as clock:
                held.watch(clock)
                while more and len(kept) <= self.settings.max_body:
                    message = await receive()
                    part = message.get("body", b"")
                    held.add(len(part))
                    kept += part
                    more = message.get("more_body", False)
                    if message["type"] != "http.request":
                        others.append(message)
        except TimeoutError:
            if held.gave_way:
                raise full() from None
            raise ProblemError(
                "webhook_unreadable", "The body did not arrive in time.", headers={"Connection": "close"}
            ) from None
        held.complete()
        return [{"type": "http.request", "body": bytes(kept), "more_body": more or bool(others)}, *others]

    async def _answer(self, scope: Any, messages: list[Any]) -> list[Any]:
        if self._app is None:
            routes = endpoint.routes(await self.opened(), self.catalogue, self.settings, prefix="")
            self._app = Routes(routes, endpoint.unrouted)
        parts: list[Any] = []
        left = iter(messages)

        async def receive() -> Any:
            return next(left, {"type": "http.request", "body": b"", "more_body": False})

        async def send(message: Any) -> None:
            parts.append(message)

        await self._app(scope, receive, send)
        return parts
