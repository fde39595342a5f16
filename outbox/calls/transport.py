"""How the calls of one lane leave this process: by HTTP, or through a function of the user's.

The lane decides whether and when a call is made, and what it came to; a transport makes it once, inside a slot, with
the last check as late as it can.
"""

import ssl
from typing import Protocol

from idem.outbox.calls.call_end import CallEnd, MarkStart, Start
from idem.outbox.calls.function_transport import FunctionTransport
from idem.outbox.calls.http_call import call
from idem.outbox.calls.kept_connections import KeptConnections
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.calls.request_head import check_account
from idem.outbox.calls.tls_settings import ssl_context
from idem.outbox.domain.contract import Account, FrozenRequest
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
    """By HTTP: calls follow each other on the connections of the lane."""

    endless = False
    left = 0

    def __init__(self, provider: Provider, margin: float, resolver: Resolver, tls: ssl.SSLContext) -> None:
        self._contract = provider.contract
        self._margin = margin
        self._resolver = resolver
        self._connections = KeptConnections(tls, provider.contract.keep_alive)

    async def exchange(
        self, account: Account, request: FrozenRequest, *, lease_ends: float, start: Start, mark_start: MarkStart | None
    ) -> CallEnd:
        return await call(
            self._connections,
            account,
            request,
            contract=self._contract,
            lease_ends=lease_ends,
            margin=self._margin,
            start=start,
            mark_start=mark_start,
            resolver=self._resolver,
        )

    async def close(self) -> None:
        self._resolver.close()
        self._connections.close()
