"""How many calls become unknown because connections are used again: servers that close idle connections at bad moments.

    .venv/bin/python tests/measure/reuse_ambiguity.py [CALLS] [WORD]

It prints a line of JSON for each kind of server (whose name has WORD): CALLS over it, in bursts with pauses between
them, by the default `keep_alive`. A pause is as long as what the server waits, give or take a few milliseconds, or as
the calls' own bound, or shorter. 100,000 calls take some minutes.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from http_calls import ANSWER, REQUEST
from providers.fix_bank import bank

from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import Account, Contract
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Succeeded
from idem.outbox.values import clock

KEEP = Contract("").keep_alive
SLOTS = 100


@dataclass(frozen=True)
class Server:
    """`idle`: seconds after which it closes, from the shortest to the longest, drawn anew for each wait. `requests`:
    after so many it closes; `announced`: its last answer says so."""

    name: str
    idle: tuple[float, float]
    requests: int = 0
    announced: bool = False


SERVERS = (
    Server("idle 5 s (Node, uvicorn, Apache)", (5.0, 5.0)),
    Server("idle 60 to 75 s (load balancers, nginx)", (60.0, 75.0)),
    Server("idle 2 s (gunicorn)", (2.0, 2.0)),
    Server("idle 5 s, 100 requests, announced", (5.0, 5.0), 100, True),
    Server("idle 5 s, 100 requests, not announced", (5.0, 5.0), 100),
    Server("adversary: idle as long as our pauses", (0.05, 2.0)),
    Server("adversary: idle exactly our bound", (KEEP, KEEP)),
)


class Serving(asyncio.Protocol):
    """One connection of a server. `read` counts the requests of all of them."""

    read = 0

    def __init__(self, kind: Server) -> None:
        self._kind = kind
        self._answered = 0
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not data.endswith(b"}"):
            return
        Serving.read += 1
        self._answered += 1
        last = self._answered == self._kind.requests
        if self._closing is not None:
            self._closing.cancel()
        said = b"Created\r\nConnection: close\r\n" if last and self._kind.announced else b"Created\r\n"
        self._transport.write(ANSWER.replace(b"Created\r\n", said))
        if last:
            self._transport.close()
            return
        wait = random.uniform(*self._kind.idle)
        self._closing = asyncio.get_running_loop().call_later(wait, self._transport.close)


async def _serve(tell: Connection, kind: Server) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Serving(kind), "127.0.0.1", 0, backlog=1000)
    tell.send(server.sockets[0].getsockname()[1])
    await loop.run_in_executor(None, tell.recv)
    tell.send(Serving.read)


def _run(tell: Connection, kind: Server) -> None:
    asyncio.run(_serve(tell, kind))


@contextmanager
def running(kind: Server, found: dict[str, Any]) -> Iterator[str]:
    ours, theirs = Pipe()
    process = get_context("spawn").Process(target=_run, args=(theirs, kind), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        ours.send(None)
        found["read_by_server"] = ours.recv()
        process.join()


def pause(kind: Server) -> float:
    """Mostly near the moment at which the server closes, or at which we would not use the connection any more."""
    edge = random.choice((random.uniform(*kind.idle), KEEP, random.uniform(0.05, KEEP)))
    return max(0.0, min(edge, 2 * KEEP) + random.gauss(0, 0.003))


async def measure(kind: Server, origin: str, calls: int, found: dict[str, Any]) -> None:
    account = Account("main", origin)
    contract = Contract("bank", keep_alive=KEEP)
    lane = Lane(bank(contract=contract, accounts={"main": account}), account, slots=SLOTS, margin=1.0)
    ends: Counter[str] = Counter()
    left = calls

    async def slot(number: int) -> None:
        nonlocal left
        while left > 0:
            for _ in range(random.randint(1, 20)):
                left -= 1
                outcome, _ = await lane.send(number, REQUEST, lease_ends=clock.boottime() + 60, start=lambda: True)
                match outcome:
                    case Succeeded():
                        ends["succeeded"] += 1
                    case Ambiguous():
                        ends["ambiguous"] += 1
                    case NotExecuted():
                        ends["not_executed"] += 1
                lane.breaker = type(lane.breaker)()
            await asyncio.sleep(pause(kind))

    await asyncio.gather(*(slot(number) for number in range(SLOTS)))
    await lane.close()
    made = sum(ends.values())
    share = round(ends["ambiguous"] / made * 1e4, 2)
    found |= {"server": kind.name, "calls": made, **ends, "ambiguous_in_10000": share}


def main(calls: int, word: str) -> None:
    random.seed(7)
    for kind in (each for each in SERVERS if word in each.name):
        found: dict[str, Any] = {}
        with running(kind, found) as origin:
            asyncio.run(measure(kind, origin, calls, found))
        # Each call was read once at most, and each that succeeded exactly once.
        assert found["succeeded"] <= found["read_by_server"] <= found["succeeded"] + found.get("ambiguous", 0)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2] if len(sys.argv) > 2 else "")
