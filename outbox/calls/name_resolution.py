"""Resolves names in a lane's own threads, and pins them: hung look-ups of one provider delay no other lane (hazard 64).

asyncio resolves in the loop's default executor, which every lane of a process shares and which no cancellation frees.
Here each lane has its own few threads, and all its calls wait for one look-up together.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol, TypeAlias

from idem.outbox.values import clock

ResolveName: TypeAlias = Callable[[str], Sequence[str]]
"""Blocking: the addresses of a name, best first. Raises OSError (socket.gaierror)."""

PINNED = 30.0
"""Seconds for which an answer is used without asking again."""

THREADS = 2

LOOPBACK = ("127.0.0.1", "::1")


def system_lookup(host: str) -> tuple[str, ...]:
    """The addresses that the system's resolver gives, in its order (RFC 6724). Raises socket.gaierror."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    # A scoped address (fe80::1%eth0) cannot stand in a URL.
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found if "%" not in str(address[0])))


class Addresses(Protocol):
    """What a call needs of a resolver."""

    async def address(self, host: str) -> str: ...

    def failed(self, host: str, address: str) -> None: ...


@dataclass(slots=True)
class _Pin:
    addresses: tuple[str, ...]
    until: float


class Resolver:
    """The resolver of one lane. Belongs to one event loop."""

    def __init__(self, lookup: ResolveName = system_lookup, *, pinned: float = PINNED, threads: int = THREADS) -> None:
        self._lookup = lookup
        self._pinned = pinned
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="idem-resolve")
        self._pins: dict[str, _Pin] = {}
        self._running: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._failures: dict[tuple[str, str], float] = {}

    async def address(self, host: str) -> str:
        """An IP address for the host: the first that has not failed, else the one whose failure is longest ago.

        IP literals are handed back; `localhost` is the loopback address without asking (RFC 6761 section 6.3).
        Raises OSError if the name has no address. May take as long as the system's resolver does: the caller limits it.
        """
        if _is_literal(host):
            return host
        if host.rstrip(".").lower() == "localhost":
            return self._best(host, LOOPBACK)
        pin = self._pins.get(host)
        if pin is None or pin.until <= clock.boottime():
            pin = await self._look_up(host)
        return self._best(host, pin.addresses)

    def failed(self, host: str, address: str) -> None:
        """No connection could be made to this address: the next call takes another one, if there is one."""
        self._failures[host, address] = clock.boottime()

    def close(self) -> None:
        """Let the threads end. A look-up that hangs ends with the system's resolver, not before."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _look_up(self, host: str) -> _Pin:
        future = self._running.get(host)
        if future is None:
            future = asyncio.get_running_loop().run_in_executor(self._executor, self._lookup, host)
            self._running[host] = future
            future.add_done_callback(lambda done: self._looked_up(host, done))
        # Shielded: the caller whose time is up must not end the look-up that the others wait for.
        addresses = tuple(await asyncio.shield(future))
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
        return _Pin(addresses, clock.boottime() + self._pinned)

    def _looked_up(self, host: str, done: asyncio.Future[Sequence[str]]) -> None:
        del self._running[host]
        # Reading the exception also keeps asyncio from complaining when every caller has gone.
        if done.cancelled() or done.exception() is not None or not done.result():
            return
        addresses = tuple(done.result())
        self._pins[host] = _Pin(addresses, clock.boottime() + self._pinned)
        for known in [key for key in self._failures if key[0] == host and key[1] not in addresses]:
            del self._failures[known]

    def _best(self, host: str, addresses: tuple[str, ...]) -> str:
        return min(addresses, key=lambda address: self._failures.get((host, address), float("-inf")))


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
