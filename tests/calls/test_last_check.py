"""The last check: after the connection stands and before the first byte, on the clock that counts sleep."""

import asyncio
import os
import signal
import sys
import time
from asyncio import selector_events
from typing import Any

import pytest
from calls.conftest import Resolving

from idem.outbox.calls.call_end import NotSent
from idem.outbox.domain.contract import Contract, FrozenRequest, Response
from idem.outbox.values import clock

CONTRACT = Contract("bank", connect_timeout=1.0, deadline=2.0)


async def nothing_arrived(server: Any) -> bool:
    """The server saw the connection end, and not one byte."""
    await asyncio.wait_for(server.done.wait(), 10)
    return server.connections == 1 and server.stray == b""


async def given_back(result: Any, server: Any, error: str | None = None) -> None:
    """The claim was given back, and nothing left."""
    assert isinstance(result, NotSent) and result.given_back
    assert error in (None, result.seen.error)
    assert await nothing_arrived(server)


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`jump(seconds)`: the boot clock goes on, as after a suspension; asyncio's own does not notice."""
    ahead = [0.0]
    real = clock.boottime
    monkeypatch.setattr(clock, "boottime", lambda: real() + ahead[0])

    def jump(seconds: float) -> bool:
        ahead[0] += seconds
        return True

    return jump


def test_the_boot_clock_goes_on_in_seconds() -> None:
    before = clock.boottime()
    time.sleep(0.05)
    assert 0.04 < clock.boottime() - before < 5


async def test_a_lease_in_the_past_makes_no_connection(dial: Any, drinking: Any) -> None:
    """Hazard 1: frozen between claim and call."""
    for lease in (-1.0, 2.4):
        result = await dial(drinking.origin, lease=lease)
        assert isinstance(result, NotSent) and result.given_back
        assert (result.seen.error, result.seen.started) == ("LeaseTooShort", False)
    assert drinking.connections == 0


async def test_a_lease_that_got_too_short_while_connecting_leaves_no_byte_on_the_wire(
    dial: Any, drinking: Any, jump: Any
) -> None:
    """Hazard 1: suspended after the connection stood."""
    result = await dial(drinking.origin, start=lambda: jump(58))
    await given_back(result, drinking, "LeaseTooShort")


async def test_a_resolver_that_takes_most_of_the_lease_ends_in_a_give_back(dial: Any, drinking: Any, jump: Any) -> None:
    """Hazard 1: frozen while a name is resolved."""

    result = await dial(drinking.origin, resolver=Resolving(lambda host: jump(59) and host))
    assert isinstance(result, NotSent) and result.given_back
    assert drinking.connections == 0


async def test_a_resolver_that_is_really_slow_costs_the_provider_nothing(dial: Any) -> None:
    """Hazard 1: the name's own time is limited, and its end is no unknown."""

    result = await dial("http://api.test", resolver=Resolving(str, seconds=30))
    assert isinstance(result, NotSent)
    assert (result.given_back, result.seen.error, result.seen.note) == (False, "TimeoutError", "no address")


async def test_the_check_comes_last_after_the_mark(dial: Any, drinking: Any, jump: Any) -> None:
    """Hazard 1: the committed mark itself may take long."""
    order: list[str] = []

    def start() -> bool:
        order.append("start")
        return True

    async def mark() -> bool:
        order.append("mark")
        await asyncio.sleep(0)
        return bool(jump(58))

    result = await dial(drinking.origin, start=start, mark_start=mark)
    assert order == ["start", "mark"]
    await given_back(result, drinking)


async def test_given_back_wins_over_started(dial: Any, drinking: Any) -> None:
    """Hazard 32: one compare-and-set; the loser does nothing."""

    async def mark() -> bool:
        raise AssertionError("the start of a claim that was given back is not marked")

    result = await dial(drinking.origin, start=lambda: False, mark_start=mark)
    await given_back(result, drinking)


async def test_a_claim_that_started_cannot_be_given_back(dial: Any, answering: Any) -> None:
    """Hazard 32: whichever comes first, exactly one of the two acts."""
    for drain_first in (True, False):
        state = "held"
        sent = len(answering.full)

        def give_back() -> bool:
            nonlocal state
            state = "given back" if state == "held" else state
            return state == "given back"

        def start() -> bool:
            nonlocal state
            state = "started" if state == "held" else state
            return state == "started"

        drained = drain_first and give_back()
        result = await dial(answering.origin, start=start)
        drained = drained or give_back()
        assert drained is drain_first
        assert isinstance(result, NotSent if drain_first else Response)
        assert len(answering.full) - sent == (0 if drain_first else 1)


async def test_a_mark_that_matches_no_claim_sends_nothing(dial: Any, drinking: Any) -> None:

    async def mark() -> bool:
        return False

    result = await dial(drinking.origin, mark_start=mark)
    await given_back(result, drinking)


@pytest.mark.parametrize("ends", ["raises", "hangs"])
async def test_a_mark_that_fails_sends_nothing_and_that_is_proven(dial: Any, drinking: Any, ends: str) -> None:

    async def mark() -> bool:
        if ends == "hangs":
            await asyncio.sleep(30)
        raise ConnectionResetError("the password is hunter2")

    result = await dial(drinking.origin, mark_start=mark)
    assert isinstance(result, NotSent) and result.given_back
    assert result.seen.error == ("CancelledError" if ends == "hangs" else "ConnectionResetError")
    assert "hunter2" not in repr(result)
    assert await nothing_arrived(drinking)


async def test_nothing_else_runs_between_the_check_and_the_write(
    dial: Any, answering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 1: not one turn of the loop, or another task could stall us there; head and body leave together."""
    turned = [False]
    real_clock, real_write = clock.boottime, selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined]
    seen: list[bool] = []

    def boottime() -> float:
        turned[0] = False
        asyncio.get_running_loop().call_soon(turned.__setitem__, 0, True)
        return real_clock()

    def write(self: Any, data: bytes) -> None:
        if bytes(data).startswith((b"POST", b"{")):
            seen.append(turned[0])
        real_write(self, data)

    monkeypatch.setattr(clock, "boottime", boottime)
    monkeypatch.setattr(selector_events._SelectorSocketTransport, "write", write)  # type: ignore[attr-defined]
    assert isinstance(await dial(answering.origin), Response)
    assert seen == [False]


CHILD = """
import asyncio, sys, time
from idem.outbox.values import clock
from idem.outbox.calls.http_call import call
from idem.outbox.calls.kept_connections import KeptConnections
from idem.outbox.calls.tls_settings import ssl_context
from idem.outbox.domain.contract import Account, Contract, FrozenRequest
from idem.outbox.calls.name_resolution import Resolver

async def main(origin, how):
    contract = Contract("bank", connect_timeout=1.0, deadline=1.0)

    async def mark():
        print("connected", flush=True)
        if how == "blocking":
            time.sleep(0.4)
        else:
            await asyncio.sleep(0.4)
        return True

    result = await call(KeptConnections(ssl_context(), 1.5), Account("main", origin),
                        FrozenRequest("POST", "/", {}, b"{}"), contract=contract,
                        lease_ends=clock.boottime() + 2.5, margin=0.2, start=lambda: True, mark_start=mark,
                        resolver=Resolver())
    print(type(result).__name__, result.given_back, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
@pytest.mark.parametrize("how", ["blocking", "awaiting"])
async def test_a_process_stopped_for_longer_than_its_lease_sends_nothing_when_it_wakes(drinking: Any, how: str) -> None:
    """Hazard 1, with a real process: SIGSTOP before the send, SIGCONT after the lease."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, drinking.origin, how, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert await asyncio.wait_for(child.stdout.readline(), 30) == b"connected\n"
        os.kill(child.pid, signal.SIGSTOP)
        await asyncio.sleep(3)
        assert drinking.stray == b""
        os.kill(child.pid, signal.SIGCONT)
        assert await asyncio.wait_for(child.stdout.read(), 30) == b"NotSent True\n"
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    assert await nothing_arrived(drinking)


async def test_a_request_without_a_body_is_checked_too(dial: Any, drinking: Any, jump: Any) -> None:
    result = await dial(drinking.origin, FrozenRequest("DELETE", "/payments/1", {}, b""), start=lambda: jump(58))
    assert isinstance(result, NotSent)
    assert await nothing_arrived(drinking)
