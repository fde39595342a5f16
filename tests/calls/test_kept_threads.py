"""Threads for the user's code are kept: what ends at once needs few of them, and what waits gets one each."""

import asyncio
import decimal
import gc
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from idem.outbox.calls.kept_threads import KeptThreads
from idem.outbox.calls.user_code import Turns, in_a_thread


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hangs until it is set; set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


async def test_what_waits_gets_a_thread_each() -> None:
    together = threading.Barrier(30)
    passed = await asyncio.wait_for(asyncio.gather(*(in_a_thread(together.wait) for _ in range(30))), 30)
    assert sorted(passed) == list(range(30))


async def test_a_thread_is_used_again() -> None:
    used = {await in_a_thread(threading.get_ident) for _ in range(200)}
    # The loop may give out work before the thread that it came back from waits again.
    assert len(used) <= 20


async def test_what_is_raised_comes_back_and_an_exit_does_not_end_the_thread() -> None:
    def leave() -> None:
        raise SystemExit(3)

    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="SystemExit"):
        await in_a_thread(leave)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_a_thread(stop)
    assert await in_a_thread(lambda: 1) == 1


async def test_what_one_sets_in_its_context_is_gone_for_the_next() -> None:
    """A precision of decimals would change the amounts of other operations."""
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

    def careless() -> None:
        tenant.set("acme")
        decimal.getcontext().prec = 3

    turns = Turns(limit=10, patience=10)
    for _ in range(20):
        await in_a_thread(careless)
        await turns.run("rates", careless)
        for run in (
            in_a_thread(lambda: (tenant.get(), decimal.Decimal("12345.67") * 1)),
            turns.run("pay", lambda: (tenant.get(), decimal.Decimal("12345.67") * 1)),
        ):
            assert await run == ("nobody", decimal.Decimal("12345.67"))


def test_a_thread_without_work_ends() -> None:
    threads, done = KeptThreads(idle=0.05), threading.Event()
    names: list[threading.Thread] = []

    def work() -> None:
        names.append(threading.current_thread())
        done.set()

    threads.begin(work)
    assert done.wait(30)
    names[0].join(30)
    assert not names[0].is_alive()
    done.clear()
    threads.begin(work)
    assert done.wait(30)


def test_no_thread_left_is_said_and_the_work_is_not_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, done = KeptThreads(), threading.Event()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            threads.begin(lambda: pytest.fail("the caller was told that it does not run"))
    threads.begin(done.set)
    assert done.wait(30)


async def test_code_that_hangs_keeps_its_slot_and_no_other_turn(gate: threading.Event) -> None:
    turns = Turns(limit=0.3, patience=0.3, slots=2)
    with pytest.raises(TimeoutError):
        await turns.run("pay", gate.wait)
    assert await asyncio.gather(*(turns.run("pay", lambda: 7) for _ in range(50))) == [7] * 50
    assert await turns.run("ship", lambda: 8) == 8
    with pytest.raises(TimeoutError):
        await turns.run("pay", gate.wait)
    # Both slots of this operation hang now; others have theirs.
    with pytest.raises(TimeoutError):
        await turns.run("pay", lambda: 9)
    assert await turns.run("ship", lambda: 8) == 8
    gate.set()
    assert await asyncio.wait_for(_until_it_runs(turns), 30) == 9


async def _until_it_runs(turns: Turns) -> int:
    while True:
        try:
            return await turns.run("pay", lambda: 9)
        except TimeoutError:
            continue


async def test_a_turn_that_nobody_waits_for_is_not_begun(gate: threading.Event) -> None:
    turns, begun = Turns(limit=10, patience=10, slots=1), threading.Event()
    first = asyncio.create_task(turns.run("pay", gate.wait))
    await asyncio.sleep(0)
    second = asyncio.create_task(turns.run("pay", begun.set))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gate.set()
    assert await first is True
    assert await turns.run("pay", lambda: begun.is_set()) is False


def test_a_loop_that_has_ended_is_let_go() -> None:
    async def once() -> weakref.ref[asyncio.AbstractEventLoop]:
        await in_a_thread(lambda: None)
        return weakref.ref(asyncio.get_running_loop())

    ended = asyncio.run(once())
    gc.collect()
    assert ended() is None
