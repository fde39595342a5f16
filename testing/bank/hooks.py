"""Hooks: a test's callbacks at three moments of a request."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass

from idem.testing.bank.errors import SettingsError
from idem.testing.bank.records import Received
from idem.testing.bank.script import EVENTS, Callback, Event, Happening, Matcher, matcher


@dataclass
class _Hook:
    event: Event
    matches: Callable[[Received], bool]
    callback: Callback
    left: int | None


class Hooks:
    """The callbacks. In a bank on the test's own loop they run on that loop; in a bank in a thread they run in worker
    threads, so that a callback that blocks delays only its own request. In both cases the bank waits for them before it
    continues with the request. The request continues if a callback raises; the bank raises the exceptions when it
    closes.
    """

    def __init__(self) -> None:
        self.in_threads = False
        self.raised: list[Exception] = []
        self._hooks: list[_Hook] = []
        self._lock = threading.Lock()

    def add(self, event: Event, match: Matcher, callback: Callback, times: int | None) -> None:
        """Call back at each matching event, at most `times` times.

        Raises:
            SettingsError: there is no such event, or the match is invalid.
        """
        if event not in EVENTS:
            raise SettingsError(f"{event!r} is not an event. Use one of {', '.join(EVENTS)}")
        with self._lock:
            self._hooks.append(_Hook(event, matcher(match), callback, times))

    async def fire(self, happening: Happening) -> None:
        """Run the callbacks that match, in the order in which they were added."""
        for callback in self._due(happening):
            try:
                if self.in_threads and not inspect.iscoroutinefunction(callback):
                    result = await asyncio.to_thread(callback, happening)
                else:
                    result = callback(happening)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                self.raised.append(error)

    def _due(self, happening: Happening) -> list[Callback]:
        due = []
        with self._lock:
            for hook in self._hooks:
                if hook.event == happening.event and hook.left != 0 and hook.matches(happening.request):
                    if hook.left is not None:
                        hook.left -= 1
                    due.append(hook.callback)
        return due
