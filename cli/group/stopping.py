"""Signals that stop a supervisor: SIGTERM, SIGINT and SIGHUP mean the same, and a second one changes nothing."""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Whether a stop was requested, and a wait that a signal or the exit of a child ends.

    Before `hold` nothing runs that could be left behind, so a signal ends the command at once, with exit code 0.
    """

    def __init__(self, wakes: int) -> None:
        self.asked = False
        self._held = False
        self._wakes = wakes

    @property
    def ends(self) -> bool:
        """Whether a signal has ended the command."""
        return self.asked and not self._held

    def hold(self) -> None:
        """From now on a signal only sets `asked`."""
        self._held = True

    def wait(self, seconds: float) -> None:
        """Sleep until a signal arrives, a child exits, or `seconds` have passed."""
        if select.select([self._wakes], [], [], max(0.0, seconds))[0]:
            os.read(self._wakes, 4096)

    def signalled(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        first, self.asked = not self.asked, True
        if first and not self._held:
            raise SystemExit(0)


@contextlib.contextmanager
def group_stop() -> Iterator[Stop]:
    """The main thread's signals as a `Stop`, until the end of the block; also for process 1 of a container."""
    wakes, wake = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(wake, False)
    stop = Stop(wakes)
    # SIGCHLD needs a handler of any kind, or it does not end the wait.
    handlers = dict.fromkeys(_asking(), stop.signalled) | {signal.SIGCHLD: lambda _number, _frame: None}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    woke = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield stop
    except Exception:
        # Code that a signal interrupts may raise its own error instead, e.g. pydantic's core.
        if stop.ends:
            raise SystemExit(0) from None
        raise
    finally:
        signal.set_wakeup_fd(woke)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(wakes)
        os.close(wake)


def _asking() -> tuple[signal.Signals, ...]:
    # nohup means that we must survive the end of the terminal.
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return signal.SIGTERM, signal.SIGINT, *hung_up
