"""One HTTP call to a provider, and the proof that nothing was sent.

The default is that it may have happened. `NotSent` needs a proof: the exception class, the trace of the connection and
the stock transport together; or that httpx was never called; or that the recorder itself stopped the call before the
first byte. The last check of a claim stands there too, as late as it can.
"""

import asyncio
import errno
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

import httpx

from idem.outbox.calls.call_end import NEVER_OURS, CallEnd, Lost, MarkStart, NotSent, Start, last_check
from idem.outbox.calls.http_client import decoded, head, is_stock, named, origin, outgoing
from idem.outbox.calls.name_resolution import Addresses
from idem.outbox.calls.response_head import HeadStream
from idem.outbox.domain.contract import Account, Contract, FrozenRequest, Response
from idem.outbox.domain.outcomes import Seen
from idem.outbox.values import clock
from idem.outbox.values.errors import LeaseTooShort

BODY_LIMIT = 1 << 20
"""Bytes of a response body that are read; a longer one is kept up to here and is not `complete`."""
PIECES = 10_000
"""Pieces of a body, as chunked coding or the network cuts it: each costs as much as some kilobytes in one. A body
of more of them is not `complete` either."""
IN_A_TURN = 50
"""Pieces that one call reads in a turn of the loop."""

# Their raising proves that no connection stood, together with a trace that shows the failure.
_NO_CONNECTION = frozenset({httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError})
# They are raised before a connection is tried, so that there is nothing for the trace to show.
_NO_TRY = frozenset({httpx.PoolTimeout, httpx.UnsupportedProtocol})


class SecondSend(Exception):
    """The transport wanted to send the request again by itself."""


class LeaseOver(Exception):
    """The process was stopped between head and body for longer than the lease: the body stays here."""


class BodyTooLong(Exception):
    """The response body is longer than the limit, or comes in more pieces."""


@dataclass(slots=True, eq=False, kw_only=True)
class Recorder:
    """The trace callback of one call: remembers what was seen, and holds the last check.

    Exceptions that it raises end the call before what the event announces has happened.
    """

    lease_ends: float
    needed: float
    margin: float
    start: Start
    mark_start: MarkStart | None
    body: bool
    released: bool = False
    stopped: LeaseTooShort | None = None
    stopped_by: str = LeaseTooShort.__name__
    no_connection: bool = False
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    connection: object = None

    @property
    def fits(self) -> bool:
        """Whether deadline and margin still fit into the lease."""
        return clock.boottime() + self.needed + self.margin <= self.lease_ends

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        match event.partition(".")[2]:
            case "connect_tcp.failed" | "connect_unix_socket.failed" | "start_tls.failed":
                self.no_connection = True
            case "connect_tcp.complete" | "start_tls.complete":
                self.connection = info["return_value"]
            case "send_request_headers.started" if info["request"].method == b"CONNECT":
                self.no_connection = True
            case "send_request_headers.started":
                if self.released or self.stopped is not None:
                    raise SecondSend
                # No await from the end of the check to the write: httpx, h11 and anyio have none there either.
                await self._last_check()
                self.released = True
            case "send_request_body.started" if self.released and self.body:
                if clock.boottime() > self.lease_ends - self.margin:
                    raise LeaseOver
            case "receive_response_headers.complete" if self.released:
                if isinstance(self.connection, HeadStream):
                    self.connection.head_is_read()
                # Kept here, so that nothing that the client does with a response can lose its status.
                _, status, _, headers = info["return_value"]
                self.status, self.headers = status, named(headers)

    async def _last_check(self) -> None:
        try:
            await last_check(self.start, self.mark_start)
            if not self.fits:
                raise LeaseTooShort("the deadline and its margin no longer fit into the lease")
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


def proves_not_sent(error: BaseException, recorder: Recorder, client: httpx.AsyncClient) -> bool:
    """Whether this exception of `client.send` proves that no byte of the request left: class, trace and transport.

    Stricter than a subclass check: a class that httpx does not raise itself proves nothing. Call it while the
    transport still is what it was during the call.
    """
    if recorder.released or not is_stock(client):
        return False
    if recorder.stopped is not None:
        # Whatever came up while the connection was closed after that, a deadline above all.
        return True
    return type(error) in _NO_TRY or (type(error) in _NO_CONNECTION and recorder.no_connection)


async def call(
    client: httpx.AsyncClient,
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
    head(account, request)
    recorder = Recorder(
        lease_ends=lease_ends,
        needed=contract.deadline,
        margin=margin,
        start=start,
        mark_start=mark_start,
        body=bool(request.body),
    )
    attempt = _Attempt(client, recorder, resolver, origin(account).host, body_limit, clock.boottime())
    ends = attempt.began + min(contract.deadline, lease_ends - margin - attempt.began)
    try:
        if not recorder.fits:
            raise LeaseTooShort("the deadline and its margin do not fit into the lease")
        async with asyncio.timeout(ends - clock.boottime()):
            async with asyncio.timeout(_share(contract, ends)):
                attempt.address = await resolver.address(attempt.host)
            if not recorder.fits:
                raise LeaseTooShort("the lease became too short while the name was resolved")
            outward = outgoing(
                account,
                request,
                attempt.address,
                connect_timeout=_share(contract, ends),
                deadline=contract.deadline,
                trace=recorder,
            )
            attempt.given_to_httpx = True
            await attempt.exchange(outward, ends)
    except NEVER_OURS:
        raise
    except BaseException as error:
        return attempt.failed(error)
    return attempt.response(complete=True)


@dataclass(slots=True)
class _Attempt:
    """How far one call has come."""

    client: httpx.AsyncClient
    recorder: Recorder
    resolver: Addresses
    host: str
    body_limit: int
    began: float
    address: str | None = None
    given_to_httpx: bool = False
    body: bytearray = field(default_factory=bytearray)

    async def exchange(self, request: httpx.Request, ends: float) -> None:
        response = await self.client.send(request, stream=True)
        try:
            self.recorder.status, self.recorder.headers = response.status_code, named(response.headers.raw)
            pieces = 0
            async for chunk in response.aiter_raw():
                self.body += chunk
                pieces += 1
                if len(self.body) > self.body_limit or pieces > PIECES:
                    raise BodyTooLong
                if pieces % IN_A_TURN == 0:
                    # What is here already is handed out without a turn of the loop.
                    await asyncio.sleep(0)
                # asyncio's clock stands still while the machine sleeps.
                if clock.boottime() > ends:
                    raise TimeoutError
        finally:
            await response.aclose()

    def response(self, *, complete: bool) -> Response:
        """The response as far as it came; a body in a coding that cannot be read is not complete."""
        body = bytes(self.body[: self.body_limit])
        plain = decoded(self.recorder.headers, body, self.body_limit)
        return Response(
            self.recorder.status or 0,
            self.recorder.headers,
            body if plain is None else plain,
            complete=complete and plain is not None,
        )

    def failed(self, error: BaseException) -> CallEnd:
        if self.recorder.status is not None:
            return self.response(complete=False)
        if self.given_to_httpx and not proves_not_sent(error, self.recorder, self.client):
            began = "after the request began" if self.recorder.released else "before the request began, without proof"
            return Lost(self._seen(error, began, started=True))
        error = self.recorder.stopped or error
        if isinstance(error, LeaseTooShort | asyncio.CancelledError):
            return NotSent(self._seen(error, "given back", started=False), given_back=True)
        if self.address is not None and self.recorder.no_connection:
            self.resolver.failed(self.host, self.address)
        step = "no connection" if self.given_to_httpx else "no address"
        return NotSent(self._seen(error, step, started=False), given_back=False)

    def _seen(self, error: BaseException, step: str, *, started: bool) -> Seen:
        detail = _detail(error)
        return Seen(
            error=self.recorder.stopped_by if error is self.recorder.stopped else type(error).__name__,
            note=f"{step}: {detail}" if detail else step,
            started=started,
            elapsed=clock.boottime() - self.began,
        )


def _share(contract: Contract, ends: float) -> float:
    """Seconds for one of name, connection and TLS: never so long that all three together meet the total deadline.

    The end of the total deadline proves nothing, while the end of one of these does.
    """
    return min(contract.connect_timeout, 0.4 * max(0.0, ends - clock.boottime()))


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
