"""The breaker as a table: what opens it, what it lets through, what closes it."""

from itertools import pairwise

import pytest

from idem.outbox.calls.breaker import GRACE, LONGEST_PAUSE, UNLIMITED, Breaker, BreakerState
from idem.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Refused, Succeeded

TRANSPORT = NotExecuted("transport")
CONFIG = NotExecuted("config")
THROTTLED = NotExecuted("throttled")
REQUEST = NotExecuted("request")
GIVEN_BACK = NotExecuted("given_back")
DONE = Succeeded("p-1")


def played(*outcomes: Outcome, same_row: bool = False, trouble: bool = True) -> Breaker:
    breaker = Breaker(jitter=lambda: 1.0)
    for number, outcome in enumerate(outcomes):
        row = "row" if same_row else f"row {number}"
        assert breaker.may_call(row, 0.0) or breaker.state(0.0) is BreakerState.OPEN
        breaker.record(row, outcome, 0.0, trouble=trouble)
    return breaker


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([], BreakerState.CLOSED),
        ([TRANSPORT] * 4, BreakerState.CLOSED),
        ([TRANSPORT] * 5, BreakerState.OPEN),
        ([TRANSPORT] * 4 + [DONE, TRANSPORT], BreakerState.CLOSED),
        ([TRANSPORT] * 4 + [THROTTLED, TRANSPORT], BreakerState.CLOSED),
        ([TRANSPORT] * 4 + [GIVEN_BACK, TRANSPORT], BreakerState.OPEN),
        ([CONFIG] * 4, BreakerState.CLOSED),
        ([CONFIG] * 5, BreakerState.OPEN),
        ([CONFIG] * 4 + [Ambiguous(), CONFIG], BreakerState.OPEN),
        ([CONFIG] * 4 + [REQUEST, CONFIG], BreakerState.CLOSED),
        ([CONFIG] * 4 + [Refused(None), CONFIG], BreakerState.CLOSED),
        ([Ambiguous()] * 9, BreakerState.CLOSED),
        ([Ambiguous()] * 10, BreakerState.OPEN),
        ([Ambiguous()] * 9 + [Pending("p-1"), Ambiguous()], BreakerState.CLOSED),
        ([THROTTLED] * 20, BreakerState.CLOSED),
        ([REQUEST] * 20, BreakerState.CLOSED),
        ([GIVEN_BACK] * 20, BreakerState.CLOSED),
    ],
    ids=repr,
)
def test_what_opens(outcomes: list[Outcome], state: BreakerState) -> None:
    breaker = played(*outcomes)
    assert breaker.state(0.0) is state
    assert breaker.room(0.0) == (UNLIMITED if state is BreakerState.CLOSED else 0)


def test_one_row_with_a_wrong_configuration_never_stops_a_lane() -> None:
    """Hazard 63: a tenant's own row, tried again and again."""
    assert played(*[CONFIG] * 50, same_row=True).state(0.0) is BreakerState.CLOSED


def test_what_the_provider_says_ambiguously_does_not_open() -> None:
    assert played(*[Ambiguous()] * 50, trouble=False).state(0.0) is BreakerState.CLOSED


def test_half_open_lets_one_call_through_and_a_decision_closes() -> None:
    """Hazard 48: the probe is a real call, so it is one."""
    breaker = played(*[TRANSPORT] * 5)
    assert breaker.wait(0.0) == 2.0
    assert not breaker.may_call("other", 1.9)
    assert breaker.state(2.0) is BreakerState.HALF_OPEN
    assert breaker.room(2.0) == 1
    assert breaker.may_call("other", 2.0)
    assert breaker.room(2.0) == 0
    assert not breaker.may_call("third", 2.0)
    breaker.record("other", DONE, 3.0)
    assert breaker.state(3.0) is BreakerState.CLOSED
    assert breaker.closings == 1


def test_the_row_that_failed_last_waits_for_another_one_but_not_for_ever() -> None:
    """Hazard 63: which row is tried first."""
    breaker = played(*[CONFIG] * 5)
    assert breaker.last_failed == "row 4"
    assert not breaker.may_call("row 4", 2.0)
    assert breaker.may_call("row 3", 2.0)
    breaker.record("row 3", GIVEN_BACK, 2.0)
    assert breaker.may_call("row 4", 2.0 + GRACE)


def test_the_pauses_grow_to_a_minute() -> None:
    breaker = played(*[TRANSPORT] * 5)
    now, pauses = 0.0, []
    for number in range(12):
        pauses.append(breaker.wait(now))
        now += pauses[-1]
        assert breaker.may_call(number, now)
        breaker.record(number, TRANSPORT, now)
    assert pauses[0] == 2.0
    assert all(later >= earlier for earlier, later in pairwise(pauses))
    assert pauses[-1] == LONGEST_PAUSE
    unlucky = Breaker(jitter=lambda: 0.0)
    for number in range(5):
        unlucky.record(number, TRANSPORT, 0.0)
    assert unlucky.wait(0.0) == 1.0


def test_a_probe_that_was_given_back_frees_the_place() -> None:
    breaker = played(*[TRANSPORT] * 5)
    assert breaker.may_call("a", 2.0)
    breaker.record("a", GIVEN_BACK, 2.0)
    assert breaker.may_call("b", 2.0)


def test_a_throttled_probe_waits_as_long_again() -> None:
    breaker = played(*[TRANSPORT] * 5)
    assert breaker.may_call("a", 2.0)
    breaker.record("a", THROTTLED, 2.0)
    assert (breaker.state(2.0), breaker.wait(2.0)) == (BreakerState.OPEN, 2.0)


def test_the_end_of_an_earlier_call_is_not_the_probes() -> None:
    breaker = played(*[TRANSPORT] * 5)
    assert breaker.may_call("probe", 2.0)
    breaker.record("straggler", TRANSPORT, 2.0)
    assert breaker.state(2.0) is BreakerState.HALF_OPEN
    assert breaker.room(2.0) == 0
    breaker.record("another straggler", DONE, 2.0)
    assert breaker.state(2.0) is BreakerState.CLOSED
    breaker.record("probe", TRANSPORT, 2.0)
    assert breaker.state(2.0) is BreakerState.CLOSED


@pytest.mark.parametrize(("cause", "after"), [(TRANSPORT, BreakerState.CLOSED), (CONFIG, BreakerState.HALF_OPEN)])
def test_a_lookup_closes_what_silence_opened_and_not_what_our_credentials_did(
    cause: Outcome, after: BreakerState
) -> None:
    breaker = played(*[cause] * 5)
    assert breaker.may_call("question", 2.0)
    breaker.record_lookup("question", 2.0, reached=True)
    assert breaker.state(2.0) is after
    assert breaker.room(2.0) > 0


def test_look_ups_do_not_break_a_row_of_wrong_configurations() -> None:
    breaker = played(*[CONFIG] * 4)
    breaker.record_lookup("question", 0.0, reached=True)
    breaker.record("row 5", CONFIG, 0.0)
    assert breaker.state(0.0) is BreakerState.OPEN


def test_look_ups_that_get_no_answer_open_it() -> None:
    breaker = Breaker()
    for number in range(5):
        breaker.record_lookup(number, 0.0, reached=False)
    assert breaker.state(0.0) is BreakerState.OPEN
