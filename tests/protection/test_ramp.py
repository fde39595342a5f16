"""After a breaker closes: one call at a time, then twice as many with each success, and back to one with a failure."""

from idem.outbox.calls.breaker import RAMPED, UNLIMITED, Breaker
from idem.outcomes import Ambiguous, NotExecuted, Succeeded

DONE = Succeeded("p-1")


def closed_again() -> Breaker:
    breaker = Breaker(jitter=lambda: 1.0)
    assert breaker.at_once == UNLIMITED
    for row in range(5):
        breaker.may_call(row, 0.0)
        breaker.record(row, NotExecuted("transport"), 0.0)
    assert breaker.openings == 1
    assert breaker.may_call("probe", 10.0)
    breaker.record("probe", DONE, 10.0)
    assert breaker.closings == 1
    return breaker


def test_the_ramp_begins_with_one_and_ends() -> None:
    breaker, seen = closed_again(), []
    while breaker.at_once != UNLIMITED:
        seen.append(breaker.at_once)
        breaker.record("row", DONE, 11.0)
    assert seen == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert 2 * seen[-1] == RAMPED


def test_a_failure_on_the_way_up_begins_again() -> None:
    breaker = closed_again()
    for _ in range(3):
        breaker.record("row", DONE, 11.0)
    assert breaker.at_once == 8
    breaker.record("row", Ambiguous(), 11.0)
    assert breaker.at_once == 1


def test_a_throttled_call_and_one_that_was_given_back_change_nothing() -> None:
    breaker = closed_again()
    breaker.record("row", DONE, 11.0)
    breaker.record("row", NotExecuted("throttled"), 11.0)
    breaker.record("row", NotExecuted("given_back"), 11.0)
    assert breaker.at_once == 2


def test_an_answered_look_counts_as_a_success() -> None:
    breaker = closed_again()
    breaker.record_lookup("key", 11.0, reached=True)
    assert breaker.at_once == 2


def test_a_lane_that_never_broke_is_not_slowed_down() -> None:
    breaker = Breaker()
    breaker.record("row", Ambiguous(), 0.0)
    breaker.record("row", DONE, 0.0)
    assert breaker.at_once == UNLIMITED
