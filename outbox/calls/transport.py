"""How the calls of one lane leave this process: by HTTP, or through a function of the user's.

The lane decides whether and when a call is made, and what it came to; a transport makes it once, inside a slot, with
the last check as late as it can.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Protocol

import httpx

from idem.outbox.calls.call_end import CallEnd, MarkStart, Start
from idem.outbox.calls.function_transport import FunctionTransport
from idem.outbox.calls.http_call import call
from idem.outbox.calls.http_client import check_account, ssl_context, stock_client
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.domain.contract import Account, FrozenRequest, Response
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.send import SendProvider


class Transport(Protocol):
    """Makes the calls of one lane. Belongs to one event loop."""

    endless: bool
    """Whether a call may outlive its deadline, because it cannot be ended: then it is not reported before it ends."""

    @property
    def left(self) -> int:
        """Questions that have been given up and still run: each keeps a slot of the lane."""
        ...

    async def exchange(
        self, account: Account, request: FrozenRequest, *, lease_ends: float, start: Start, mark_start: MarkStart | None
    ) -> CallEnd:
        """Make a call once. Raises ConfigError, and StillSending where it is `endless`; a cancellation is not passed
        on."""
        ...

    async def close(self) -> None:
        """Close what is idle; calls that run are finished."""
        ...


def transport(
    provider: Provider,
    account: Account,
    *,
    slots: int,
    margin: float,
    resolver: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
) -> Transport:
    """The way to this account. Raises ConfigError if its origin or credentials cannot be used."""
    if isinstance(provider, SendProvider):
        return FunctionTransport(provider, slots, margin)
    check_account(account)
    return HttpTransport(provider, margin, resolver or Resolver(), tls or ssl_context(account.authorities))


class HttpTransport:
    """By HTTP: each slot owns its client."""

    endless = False
    left = 0

    def __init__(self, provider: Provider, margin: float, resolver: Resolver, tls: ssl.SSLContext) -> None:
        self._provider = provider
        self._margin = margin
        self._resolver = resolver
        self._tls = tls
        self._idle: list[httpx.AsyncClient] = []
        self._closed = False

    async def exchange(
        self, account: Account, request: FrozenRequest, *, lease_ends: float, start: Start, mark_start: MarkStart | None
    ) -> CallEnd:
        client = self._idle.pop() if self._idle else stock_client(self._tls, self._provider.contract)
        sound = False
        try:
            ended = await call(
                client,
                account,
                request,
                contract=self._provider.contract,
                lease_ends=lease_ends,
                margin=self._margin,
                start=start,
                mark_start=mark_start,
                resolver=self._resolver,
            )
            sound = isinstance(ended, Response) and ended.complete
            return ended
        finally:
            # What a call that broke off has left in the client's pool of one connection is not known.
            if sound and not self._closed:
                # It keeps every Set-Cookie, though none is ever sent.
                client.cookies.clear()
                self._idle.append(client)
            else:
                await _discard(client)

    async def close(self) -> None:
        self._closed = True
        self._resolver.close()
        while self._idle:
            await _discard(self._idle.pop())


async def _discard(client: httpx.AsyncClient) -> None:
    # What the call came to is known by now, and must not get lost by cleaning up.
    with suppress(Exception, asyncio.CancelledError):
        await client.aclose()
