"""How a supervisor hears that it should stop: SIGTERM, SIGINT and SIGHUP are one, and a second one changes nothing."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Whether somebody has asked, and a wait that a signal or the end of a child cuts short.

    Until `hold` nothing is running that could be left behind, so a signal ends the command at once, with exit code 0.
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
        """From now on a signal only leaves word."""
        self._held = True

    def wait(self, seconds: float) -> None:
        """Sleep until a signal comes, a child ends, or `seconds` are over."""
        if select.select([self._wakes], [], [], max(0.0, seconds))[0]:
            os.read(self._wakes, 4096)

    def signalled(self, _number: int, _frame: FrameType | None) -> None:
        """The handler."""
        first, self.asked = not self.asked, True
        if first and not self._held:
            raise SystemExit(0)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The main thread's signals as a `Stop`, until the end of the block. Process 1 of a container needs no other."""
    wakes, wake = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(wake, False)
    stop = Stop(wakes)
    # SIGCHLD needs a handler of any kind, or it wakes nobody.
    handlers = dict.fromkeys(_asking(), stop.signalled) | {signal.SIGCHLD: lambda _number, _frame: None}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    woke = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield stop
    except Exception:
        # Code that a signal ended in the middle may have made an error of its own out of that: pydantic's core does.
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
    # Who starts us with nohup means that the end of the terminal is not ours.
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return signal.SIGTERM, signal.SIGINT, *hung_up
