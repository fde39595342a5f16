"""The connections of a lane that wait for their next call.

A server closes what is idle when it likes. A call that meets that moment may be lost, so a connection waits only for
less than servers do.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import Final

from idem.outbox.calls.connection import ProviderConnection, connect
from idem.outbox.calls.request_head import Origin
from idem.outbox.values import clock

OLDEST: Final = 30.0
"""Seconds for which one is used: the next one goes where the provider's name leads by then."""

_TIMEOUT = re.compile(r"timeout=(\d{1,6})\b")


class KeptConnections:
    """`keep`: seconds for which a connection waits at the most; 0: none does. Belongs to one event loop."""

    def __init__(self, tls: ssl.SSLContext, keep: float) -> None:
        # HTTP/2 may send a request again by itself: it is not even offered.
        tls.set_alpn_protocols(["http/1.1"])
        self.tls = tls
        self.keep = keep
        self._waiting: list[ProviderConnection] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, origin: Origin) -> ProviderConnection | None:
        """The one that has waited the shortest. Ask whether it is `quiet` immediately before its first byte."""
        now = clock.boottime()
        while self._waiting:
            found = self._waiting.pop()
            if found.origin == origin and _fresh(found, now):
                return found
            found.close()
        return None

    async def connect(self, origin: Origin, address: str, seconds: float) -> ProviderConnection:
        """A new one. Raises httpx.ConnectError and httpx.ConnectTimeout."""
        return await connect(origin, address, self.tls, seconds)

    def give_back(self, connection: ProviderConnection, headers: Mapping[str, str], *, sound: bool) -> None:
        """Let it wait for another call, if its answer was `sound` and has ended where the next one can begin."""
        now = clock.boottime()
        wait = min(_wait(headers, self.keep), connection.opened + OLDEST - now)
        if not sound or self._closed or wait <= 0 or not connection.release():
            connection.close()
            return
        connection.idle_until = now + wait
        self._waiting.append(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(wait, self._close_old)

    def close(self) -> None:
        """Close what waits; what a call has is closed when it is given back."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for each in self._waiting:
            each.close()
        self._waiting.clear()

    def _close_old(self) -> None:
        now = clock.boottime()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if _fresh(each, now):
                self._waiting.append(each)
            else:
                each.close()
        self._sweep = None
        if self._waiting:
            first = min(each.idle_until for each in self._waiting)
            self._sweep = asyncio.get_running_loop().call_later(first - now, self._close_old)


def _fresh(connection: ProviderConnection, now: float) -> bool:
    return not connection.ended and now < connection.idle_until


def _wait(headers: Mapping[str, str], keep: float) -> float:
    """Seconds for which this connection may wait: less than its server has said, where it says so."""
    if (said := headers.get("keep-alive")) and (found := _TIMEOUT.search(said)):
        return min(keep, int(found[1]) / 2)
    return keep
