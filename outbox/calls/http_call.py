"""One HTTP call to a provider, and the proof that nothing was sent.

The default is that it may have happened. `NotSent` needs a proof: no byte of the request was given to a socket, and
either no connection stood, which the class of the exception says, or we stopped the call ourselves. The last check of a
claim stands immediately before the first byte.
"""

import asyncio
import errno
import socket
import ssl
from dataclasses import dataclass
from typing import Final

import httpx

from idem.outbox.calls import replaced_httpx
from idem.outbox.calls.answer import BODY_LIMIT, ProviderAnswer, read
from idem.outbox.calls.call_end import NEVER_OURS, CallEnd, Lost, MarkStart, NotSent, Start, last_check
from idem.outbox.calls.connection import ProviderConnection
from idem.outbox.calls.kept_connections import KeptConnections
from idem.outbox.calls.name_resolution import Addresses
from idem.outbox.calls.request_head import Origin, head, on_the_wire, origin
from idem.outbox.domain.contract import Account, Contract, FrozenRequest
from idem.outbox.domain.outcomes import Seen
from idem.outbox.values import clock
from idem.outbox.values.errors import LeaseTooShort

NO_CONNECTION: Final = frozenset({httpx.ConnectError, httpx.ConnectTimeout})
"""What is raised where no connection stood. Not their subclasses: nothing of ours raises one."""


async def call(
    connections: KeptConnections,
    account: Account,
    request: FrozenRequest,
    *,
    contract: Contract,
    lease_ends: float,
    margin: float,
    start: Start,
    mark_start: MarkStart | None = None,
    resolver: Addresses,
    body_limit: int = BODY_LIMIT,
) -> CallEnd:
    """Make the call once, and return the outcome and what was observed.

    `lease_ends` is on the boot clock and `margin` in seconds; the call is not started unless `contract.deadline +
    margin` fits before it. Total time at most `contract.deadline`, names and connection included.

    Raises ConfigError before anything happens if the request cannot be sent as it is. A cancellation is *not* passed
    on: what the call came to must reach the row, so it is returned like any other end, and `Task.cancelling()` still
    tells the caller to stop. KeyboardInterrupt and SystemExit pass.
    """
    lines = head(account, request, keep=connections.keep > 0)
    began = clock.boottime()
    attempt = _Attempt(
        connections, origin(account), request, lines, contract, lease_ends - margin, start, mark_start, resolver, began,
        ends=min(began + contract.deadline, lease_ends - margin), answer=ProviderAnswer(body_limit),
    )  # fmt: skip
    sound = False
    try:
        await attempt.exchange()
        response = attempt.answer.response(complete=True)
        # A server that sends a body after the head of an answer to HEAD would be read as the next answer.
        sound = response.complete and attempt.answer.plain and request.method != "HEAD"
        return response
    except NEVER_OURS:
        raise
    except BaseException as error:
        return attempt.failed(error)
    finally:
        if attempt.connection is not None:
            connections.give_back(attempt.connection, attempt.answer.headers, sound=sound)


@dataclass(slots=True)
class _Attempt:
    """How far one call has come. Times are on the boot clock; `lease_ends` is without the margin."""

    connections: KeptConnections
    origin: Origin
    request: FrozenRequest
    lines: list[tuple[str, str]]
    contract: Contract
    lease_ends: float
    start: Start
    mark_start: MarkStart | None
    resolver: Addresses
    began: float
    ends: float
    answer: ProviderAnswer
    connection: ProviderConnection | None = None
    address: str | None = None
    released: bool = False
    """Whether the first byte may have left: set before it does, and never taken back."""
    stopped: LeaseTooShort | None = None
    stopped_by: str = LeaseTooShort.__name__

    async def exchange(self) -> None:
        self._must_fit("the deadline and its margin do not fit into the lease")
        if replaced_httpx.replaced():
            await self._through_httpx()
            return
        connection = await self._take()
        await self._last_check()
        # No await from here to the first byte, unless one more connection has to be made; then the lease is looked at
        # again. A new connection is not looked at: what is there to read may be the end of its TLS handshake.
        while connection.idle_until and not connection.quiet:
            connection.close()
            self.connection = None
            connection = await self._take()
            self._must_fit("the lease became too short while a connection was made again")
        if connection.ended:
            raise httpx.ConnectError("the connection ended before the request")
        self.released = True
        connection.ask(self.request.method, on_the_wire(self.request, self.lines), self.ends - clock.boottime())
        await read(connection, self.answer, self.ends)

    async def _take(self) -> ProviderConnection:
        """One that waits, or else a new one. It is this call's from here on."""
        found = self.connections.take(self.origin)
        if found is None:
            found = await self.connections.connect(self.origin, await self._resolved(), self._share())
        self.connection = found
        return found

    async def _resolved(self) -> str:
        self.address = None
        async with asyncio.timeout(self._share()):
            address = await self.resolver.address(self.origin.host)
        self._must_fit("the lease became too short while the name was resolved")
        self.address = address
        return address

    async def _through_httpx(self) -> None:
        address = await self._resolved()
        await self._last_check()
        self.released = True
        left = self.ends - clock.boottime()
        async with asyncio.timeout(left):
            await replaced_httpx.exchange(
                self.answer, self.origin, address, self.request, self.lines, self.connections.tls, left
            )

    def _must_fit(self, otherwise: str) -> None:
        """Raises LeaseTooShort where the deadline would end after the lease."""
        if clock.boottime() + self.contract.deadline > self.lease_ends:
            self.stopped = LeaseTooShort(otherwise)
            raise self.stopped

    async def _last_check(self) -> None:
        if self.mark_start is None:
            await self._started()
        else:
            async with asyncio.timeout(self.ends - clock.boottime()):
                await self._started()
        self._must_fit("the deadline and its margin no longer fit into the lease")

    async def _started(self) -> None:
        try:
            await last_check(self.start, self.mark_start)
        except NEVER_OURS:
            raise
        except LeaseTooShort as error:
            self.stopped = error
            raise
        except BaseException as error:
            # A cancellation too: the call ends here either way, and that nothing was sent must stay provable.
            self.stopped_by = type(error).__name__
            self.stopped = LeaseTooShort("the start could not be recorded")
            raise self.stopped from error

    def failed(self, error: BaseException) -> CallEnd:
        """What an exception of `exchange` says of the call."""
        if self.answer.status is not None:
            return self.answer.response(complete=False)
        if self.released:
            return Lost(self._seen(error, "after the request began", started=True))
        if self.stopped is not None:
            # Whatever came up after that, a deadline above all.
            return NotSent(self._seen(self.stopped, "given back", started=False), given_back=True)
        if self.address is None:
            given_back = isinstance(error, asyncio.CancelledError)
            step = "given back" if given_back else "no address"
            return NotSent(self._seen(error, step, started=False), given_back=given_back)
        if type(error) not in NO_CONNECTION:
            return Lost(self._seen(error, "before the request began, without proof", started=True))
        self.resolver.failed(self.origin.host, self.address)
        return NotSent(self._seen(error, "no connection", started=False), given_back=False)

    def _seen(self, error: BaseException, step: str, *, started: bool) -> Seen:
        detail = _detail(error)
        return Seen(
            error=self.stopped_by if error is self.stopped else type(error).__name__,
            note=f"{step}: {detail}" if detail else step,
            started=started,
            elapsed=clock.boottime() - self.began,
        )

    def _share(self) -> float:
        """Seconds for one of name, connection and TLS: never so long that all three together meet the total deadline.

        The end of the total deadline proves nothing, while the end of one of these does.
        """
        return min(self.contract.connect_timeout, 0.4 * max(0.0, self.ends - clock.boottime()))


def _detail(error: BaseException) -> str | None:
    """The loggable text of an exception: never its own text, which can quote a header or a body."""
    if isinstance(error, LeaseTooShort):
        return str(error)
    link: BaseException | None = error
    met: set[int] = set()
    # `raise first from second` can close a circle.
    while link is not None and id(link) not in met:
        met.add(id(link))
        if isinstance(link, ssl.SSLError | socket.gaierror):
            return getattr(link, "verify_message", None)
        if isinstance(link, OSError) and link.errno is not None:
            return errno.errorcode.get(link.errno)
        link = link.__cause__ or link.__context__
    return None
