"""Names: resolved by the lane's own threads, pinned, and never in the loop's default executor."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from calls.conftest import POST

from idem.outbox.calls.call_end import NotSent
from idem.outbox.calls.lane import Lane
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.values import clock
from idem.outcomes import NotExecuted, Succeeded


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """Set at the end of the test, so that the threads end with it."""
    event = threading.Event()
    yield event
    event.set()


async def test_hung_dns_in_one_lane_does_not_delay_another(answering: Any, bank: Any, hung: threading.Event) -> None:
    """Hazard 64: twelve calls whose name hangs, and a healthy provider next door."""

    def hangs(host: str) -> list[str]:
        hung.wait(30)
        return []

    sick = Lane(
        bank("http://sick.test"), bank("http://sick.test").account, slots=12, margin=0.5, resolver=Resolver(hangs)
    )
    good_bank = bank(f"http://good.test:{answering.port}")
    good = Lane(good_bank, good_bank.account, slots=2, margin=0.5, resolver=Resolver(lambda host: ["127.0.0.1"]))
    ends = clock.boottime() + 60
    stuck = [asyncio.create_task(sick.send(number, POST, lease_ends=ends, start=lambda: True)) for number in range(12)]
    await asyncio.sleep(0.1)
    began = time.monotonic()
    outcome, _ = await good.send("row", POST, lease_ends=ends, start=lambda: True)
    assert outcome == Succeeded("p-1")
    assert time.monotonic() - began < 0.5
    assert not any(task.done() for task in stuck)
    for task in stuck:
        assert (await task)[0] == NotExecuted("transport")
    assert sick.room() == 0
    assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]
    await sick.close()
    await good.close()


async def test_the_default_executor_is_used_for_nothing(
    dial: Any, answering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 64: neither for the name nor, later, by asyncio for the address."""
    threads: list[str] = []

    def getaddrinfo(host: str, *args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread().name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    result = await dial(f"http://api.test:{answering.port}")
    assert result.complete
    assert len(threads) == 1
    assert threads[0].startswith("idem-resolve")
    assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]


async def test_an_answer_is_pinned_and_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def lookup(host: str) -> list[str]:
        asked.append(host)
        time.sleep(0.05)
        return ["192.0.2.1"]

    resolver = Resolver(lookup)
    together = await asyncio.gather(*(resolver.address("api.test") for _ in range(20)))
    assert set(together) == {"192.0.2.1"}
    await resolver.address("api.test")
    assert asked == ["api.test"]
    real = clock.boottime
    monkeypatch.setattr(clock, "boottime", lambda: real() + 31)
    await resolver.address("api.test")
    assert len(asked) == 2
    resolver.close()


async def test_the_caller_whose_time_is_up_does_not_end_the_look_up_of_the_others(hung: threading.Event) -> None:
    def lookup(host: str) -> list[str]:
        hung.wait(30)
        return ["192.0.2.1"]

    resolver = Resolver(lookup)
    patient = asyncio.create_task(resolver.address("api.test"))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await resolver.address("api.test")
    hung.set()
    assert await patient == "192.0.2.1"
    resolver.close()


async def test_a_failed_look_up_is_not_pinned() -> None:
    answers: list[Any] = [socket.gaierror(socket.EAI_AGAIN, "later"), [], ["192.0.2.1"]]

    def lookup(host: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    resolver = Resolver(lookup)
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await resolver.address("api.test")
    assert await resolver.address("api.test") == "192.0.2.1"
    resolver.close()


async def test_literals_and_localhost_are_never_asked_about() -> None:
    def lookup(host: str) -> list[str]:
        raise AssertionError(host)

    resolver = Resolver(lookup)
    assert await resolver.address("192.0.2.7") == "192.0.2.7"
    assert await resolver.address("2001:db8::1") == "2001:db8::1"
    assert await resolver.address("localhost") == "127.0.0.1"
    resolver.failed("localhost", "127.0.0.1")
    assert await resolver.address("localhost") == "::1"
    resolver.close()


async def test_after_a_failed_connection_the_next_call_takes_the_next_address(dial: Any, answering: Any) -> None:
    resolver = Resolver(lambda host: ["127.0.0.2", "127.0.0.1"])
    first = await dial(f"http://api.test:{answering.port}", resolver=resolver)
    assert isinstance(first, NotSent)
    second = await dial(f"http://api.test:{answering.port}", resolver=resolver)
    assert second.complete
    resolver.close()


async def test_when_all_have_failed_the_longest_ago_is_next() -> None:
    resolver = Resolver(lambda host: ["a", "b", "c"])
    taken = []
    for _ in range(5):
        address = await resolver.address("api.test")
        taken.append(address)
        resolver.failed("api.test", address)
        await asyncio.sleep(0.002)
    assert taken == ["a", "b", "c", "a", "b"]
    resolver.close()
