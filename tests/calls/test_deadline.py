"""One total deadline around everything, and what becomes of a call that is cut off."""

import asyncio
import time
from typing import Any

import pytest
from calls.conftest import Resolving, does, raising
from fix_waiting import until

from idem.outbox.calls.call_end import Lost, NotSent
from idem.outbox.calls.http_call import call
from idem.outbox.calls.kept_connections import KeptConnections
from idem.outbox.calls.tls_settings import ssl_context
from idem.outbox.domain.contract import Account, Contract, FrozenRequest, Response
from idem.outbox.values import clock

CONTRACT = Contract("bank", connect_timeout=1.0, deadline=1.0)


drips_body = does(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", drip=b"a")
DRIPS = {
    "headers": does(b"HTTP/1.1 200 OK\r\nX: ", drip=b"a"),
    "interim": does(drip=b"HTTP/1.1 102 Processing\r\n\r\n"),
}


@pytest.mark.parametrize("handler", DRIPS.values(), ids=DRIPS)
async def test_a_server_that_drips_is_cut_off_and_lost(dial: Any, serve: Any, handler: Any) -> None:
    """Hazard 26, IB-080: no read ever takes long, the whole does."""
    server = await serve(handler)
    began = time.monotonic()
    result = await dial(server.origin, contract=CONTRACT)
    assert isinstance(result, Lost) and result.seen.error == "TimeoutError"
    assert 0.9 < time.monotonic() - began < 10
    assert 0.9 < result.seen.elapsed < 10


async def test_a_body_that_drips_is_cut_off_and_its_status_kept(dial: Any, serve: Any) -> None:
    """Hazard 26, IB-080."""
    server = await serve(drips_body)
    began = time.monotonic()
    result = await dial(server.origin, contract=CONTRACT)
    assert isinstance(result, Response) and (result.status, result.complete) == (200, False)
    assert result.body.startswith(b"aaa")
    assert time.monotonic() - began < 10


async def test_a_machine_that_slept_over_the_deadline_reads_no_further(
    dial: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's clock stands still during a suspension: the boot clock ends the body."""
    server = await serve(drips_body)
    real, woken = clock.boottime, time.monotonic() + 0.3
    monkeypatch.setattr(clock, "boottime", lambda: real() + (1000 if time.monotonic() > woken else 0))
    began = time.monotonic()
    result = await dial(server.origin, contract=Contract("bank", deadline=20.0))
    assert isinstance(result, Response)
    assert not result.complete
    assert time.monotonic() - began < 10


async def test_a_slow_connection_ends_before_the_total_deadline_does(dial: Any, serve: Any) -> None:
    """Only the end of the connection's own time is a proof; a deadline as short as it must not hide that."""

    async def silent(wire: Any) -> None:
        await asyncio.sleep(30)

    server = await serve(silent)
    result = await dial(f"https://127.0.0.1:{server.port}", contract=CONTRACT)
    assert isinstance(result, NotSent) and result.seen.error == "ConnectTimeout"


async def test_a_cancelled_call_is_lost_and_its_task_still_knows(dial: Any, drinking: Any) -> None:
    """The row must hear of it; `cancelling()` tells the slot to stop."""

    async def slot() -> tuple[Any, int]:
        result = await dial(drinking.origin)
        task = asyncio.current_task()
        assert task is not None
        return result, task.cancelling()

    task = asyncio.create_task(slot())
    await until(lambda: drinking.stray)
    task.cancel()
    result, cancelling = await task
    assert isinstance(result, Lost) and (result.seen.error, result.seen.started) == ("CancelledError", True)
    assert cancelling == 1


async def test_a_call_cancelled_in_its_body_keeps_the_status(dial: Any, serve: Any) -> None:
    server = await serve(drips_body)
    task = asyncio.create_task(dial(server.origin))
    await until(lambda: server.full)
    await asyncio.sleep(0.3)
    task.cancel()
    result = await task
    assert isinstance(result, Response) and (result.status, result.complete) == (200, False)


async def test_a_call_cancelled_before_its_name_was_known_is_given_back(dial: Any) -> None:
    task = asyncio.create_task(dial("http://api.test", resolver=Resolving(str, seconds=30)))
    await asyncio.sleep(0.05)
    task.cancel()
    result = await task
    assert isinstance(result, NotSent) and result.given_back


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_passed_on(error: type[BaseException]) -> None:
    async def main() -> None:
        await call(
            KeptConnections(ssl_context(), 1.0),
            Account("main", "http://api.test"),
            FrozenRequest("POST", "/", {}, b""),
            contract=CONTRACT,
            lease_ends=clock.boottime() + 60,
            margin=0.5,
            start=lambda: True,
            resolver=Resolving(raising(error)),
        )

    with pytest.raises(error):
        asyncio.run(main())
