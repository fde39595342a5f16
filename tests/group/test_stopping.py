"""A signal before anything runs ends the command, whatever the code that it meets makes of it."""

import signal

import pytest

from idem.cli.group.stopping import group_stop


def in_the_middle(number: signal.Signals) -> None:
    """Code that makes an error of its own out of whatever ends it, as pydantic's core does while it builds."""
    try:
        signal.raise_signal(number)
    except SystemExit as end:
        raise RuntimeError("error building a validator: SystemExit") from end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_error_that_a_signal_became_ends_with_0(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as end, group_stop():
        in_the_middle(number)
    assert end.value.code == 0


def test_an_error_stays_one_without_a_signal_and_once_something_runs() -> None:
    with pytest.raises(ZeroDivisionError), group_stop():
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), group_stop() as stop:
        stop.hold()
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        _ = 1 / 0
