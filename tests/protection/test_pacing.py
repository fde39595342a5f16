"""The rate of a fleet as a table: what each process has of it, and that a bucket never lets more through."""

import random

import pytest

from idem.outbox.domain.limits import Limits
from idem.outbox.domain.rate_limit import BURST, Pacer, Serving, part


@pytest.mark.parametrize(
    ("share", "workers", "reconcilers", "each_worker", "each_reconciler"),
    [
        (0.5, 1, 1, 50.0, 50.0),
        (0.25, 1, 1, 75.0, 25.0),
        (0.5, 4, 1, 20.0, 20.0),
        (0.1, 4, 1, 22.5, 10.0),
        (0.2, 2, 2, 40.0, 10.0),
        (0.5, 2, 0, 50.0, None),
        (0.5, 1, 3, 50.0, 100 / 6),
    ],
)
def test_all_processes_together_make_the_rate(
    share: float, workers: int, reconcilers: int, each_worker: float, each_reconciler: float | None
) -> None:
    limits, serving = Limits(rate=100.0, lookup_share=share), Serving(workers, reconcilers)
    assert part(limits, "worker", serving) == pytest.approx(each_worker)
    if each_reconciler is not None:
        assert part(limits, "reconciler", serving) == pytest.approx(each_reconciler)
    total = workers * each_worker + reconcilers * (each_reconciler or 0.0)
    assert total == pytest.approx(100.0)


def test_a_process_that_nobody_has_counted_yet_counts_itself() -> None:
    limits = Limits(rate=100.0, lookup_share=0.5)
    assert part(limits, "worker", Serving(0, 0)) == pytest.approx(100.0)
    assert part(limits, "reconciler", Serving(0, 0)) == pytest.approx(50.0)


def test_the_configuration_may_say_the_number_of_processes() -> None:
    limits = Limits(rate=100.0, lookup_share=0.1, processes=5)
    assert part(limits, "worker", Serving(1, 1)) == 20.0
    assert part(limits, "reconciler", Serving(1, 1)) == 10.0
    assert part(Limits(), "worker", Serving(1, 1)) is None


@pytest.mark.parametrize("rate", [0.5, 3.0, 40.0, 1000.0])
def test_no_interval_has_more_calls_than_its_rate_and_one_burst(rate: float) -> None:
    chance, pacer, now, begun = random.Random(7), Pacer(rate), 100.0, []
    for _ in range(2000):
        now += chance.expovariate(rate)
        for _ in range(min(pacer.room(now) or 0, chance.randrange(4))):
            assert pacer.reserve(now) == 0.0
            begun.append(now)
    assert len(begun) > 500
    saved = max(1.0, rate * BURST)
    for first in range(0, len(begun), 50):
        for last in range(first, min(len(begun), first + 300), 37):
            assert last - first + 1 <= saved + rate * (begun[last] - begun[first]) + 1e-6


def test_who_comes_later_waits_longer_and_who_gives_back_lets_the_next_go() -> None:
    pacer = Pacer(2.0)
    assert [round(pacer.reserve(0.0), 6) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert pacer.room(0.0) == 0
    assert pacer.wait(0.0) == pytest.approx(1.5)
    pacer.give_back()
    assert pacer.wait(0.0) == pytest.approx(1.0)
    assert pacer.room(0.99) == 0
    assert pacer.room(1.0) == 1


def test_a_restart_is_no_burst_and_an_idle_hour_neither() -> None:
    pacer = Pacer(100.0)
    assert pacer.room(0.0) == 1
    assert pacer.room(3600.0) == 10


def test_another_number_of_processes_takes_nothing_back_and_gives_nothing_twice() -> None:
    pacer = Pacer(10.0)
    pacer.reserve(0.0)
    pacer.set(1.0, 0.05)
    assert pacer.room(0.05) == 0
    assert pacer.room(0.54) == 0
    assert pacer.room(0.56) == 1
    pacer.set(None, 1.0)
    assert pacer.room(1.0) is None
    assert pacer.reserve(1.0) == 0.0


def test_a_clock_that_stands_still_gives_nothing() -> None:
    pacer = Pacer(5.0)
    pacer.reserve(10.0)
    assert pacer.room(9.0) == 0
    assert pacer.room(10.0) == 0
