"""A worker is killed from outside at five points of a call, against both kinds of bank: one effect each (P1, P2).

IB-021, IB-027. The bank kills it when it has acted; proxies in front of the bank and of PostgreSQL kill it when
certain bytes have passed. `IDEM_KILL_RUNS=20` makes twenty runs of each.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable

import kill_worker
import layers
import pytest
from fix_accept import Acceptor
from fix_forking import started
from fix_line import settles, target, through
from fix_spine import Spine, catalogue

from idem.decisions import Replay
from idem.testing.proxy import Direction, Proxy, ProxyAction

RUNS = int(os.environ.get("IDEM_KILL_RUNS", "6" if layers.thorough() else "2"))
POINTS = ("claimed", "left", "acted", "answered", "settling")


class Killer:
    """Kills the process of the present run once, and remembers that it did."""

    def __init__(self) -> None:
        self.pid = 0
        self.killed = False

    def kill(self) -> None:
        if self.pid and not self.killed:
            self.killed = True
            os.kill(self.pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def proxies(spine: Spine, killer: Killer, point: str, run: int) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """A proxy in front of the database and one in front of the bank, which kill at `point`."""
    settling: set[int] = set()

    def watch_database(number: int, direction: Direction, data: bytes) -> ProxyAction:
        if point == "claimed" and direction == "to_client" and b"/payments" in data:
            killer.kill()  # committed, and its answer never arrives
            return "cut"
        if point == "settling":
            if direction == "to_server" and settles(data):
                settling.add(number)
                if run % 2 == 0:
                    killer.kill()  # the statement never arrives
                    return "cut"
            elif direction == "to_client" and number in settling and b"SELECT 1" in data:
                killer.kill()  # committed, and its answer never arrives
                return "cut"
        return "pass"

    def after_bank(_number: int, direction: Direction, data: bytes) -> ProxyAction:
        if point == "left" and direction == "to_server" and b"POST /payments" in data:
            killer.kill()
        if point == "answered" and direction == "to_client" and b"HTTP/1.1" in data:
            killer.kill()
        return "pass"

    async with (
        Proxy(target(spine.url), watch_database) as database,
        Proxy(("127.0.0.1", spine.bank.port), after=after_bank) as bank,
    ):
        yield database, bank


@pytest.mark.fuzz
@pytest.mark.quick
@pytest.mark.timeout(180 * RUNS)
@pytest.mark.parametrize("kind", ["keyed", "keyless"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_worker_leaves_one_effect(spine: Spine, point: str, kind: str) -> None:
    killer = Killer()
    if point == "acted":
        spine.bank.when("acted", None, lambda _: killer.kill())
    for run in range(RUNS):
        async with proxies(spine, killer, point, run) as (database, bank):
            # The origin is frozen into the row, so everything goes through the proxy's address.
            spine.catalogue = catalogue(f"http://127.0.0.1:{bank.port}")
            spine.acceptor = Acceptor(spine.catalogue.operations, spine.catalogue.providers)
            intent = spine.accepted(f"k{run}", operation=f"pay.{kind}")
            killer.pid, killer.killed = 0, False
            bank_url = f"http://127.0.0.1:{bank.port}"
            # The process ends when it is killed at its point, and not before: nothing may end the call sooner.
            process = started(kill_worker.run, through(spine.url, database), bank_url, kill_worker.patient)
            killer.pid = process.pid or 0
            await asyncio.to_thread(process.join, 90)
            assert process.exitcode == -signal.SIGKILL, (point, kind, run, process.exitcode)
            await asyncio.sleep(0.05)  # what had left may still be acted upon by the bank
            killer.pid = 0
            await _settle(spine, lambda run=run: isinstance(spine.accept(f"k{run}", operation=f"pay.{kind}"), Replay))
            row = await spine.one("SELECT provider_key::text AS k FROM idem.requests WHERE intent_id = %(i)s", i=intent)
            made = spine.bank.log.effects(**({"key": row["k"]} if kind == "keyed" else {"reference": row["k"]}))
            assert len(made) == 1, (point, kind, run, made)
            await spine.expect(intent, letters=[], key="completed")


async def _settle(spine: Spine, settled: Callable[[], bool]) -> None:
    for _ in range(12):
        await spine.sweep(after=200)
        await spine.reconcile(hasten=True)
        await spine.work()
        if settled():
            return
    raise AssertionError("it did not settle")
