"""Asynchronous functions of the user's, run in the task that waits for them: a task of their own, with a timer and a
future to wait by, would cost as much as all the rest of a call that does nothing."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Any

from idem.outbox.calls.user_code import LAST_WORDS, passed_on
from idem.outbox.observe import telemetry
from idem.outbox.values import clock


class _Running:
    """One call. At `ends` (boot clock) it is cancelled; if it still runs a moment later, it has overrun."""

    __slots__ = ("account", "ends", "late", "overran", "task")

    def __init__(self, task: asyncio.Task[Any], ends: float, account: str) -> None:
        self.task, self.ends, self.account = task, ends, account
        self.late = self.overran = False


class InTask:
    """The calls of one lane that run so, with one timer for all their deadlines. Belongs to one event loop."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._running: set[_Running] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    async def run(self, function: Callable[..., Awaitable[Any]], *arguments: Any, ends: float, account: str) -> Any:
        """What it returns, beyond its deadline too. Raises what it raises, TimeoutError if it ended because of its
        deadline, and CancelledError if it ended because this task was cancelled."""
        task = asyncio.current_task()
        assert task is not None
        running = _Running(task, ends, account)
        self._running.add(running)
        if ends < self._next:
            self._end_at(ends)
        try:
            return await function(*arguments)
        except asyncio.CancelledError:
            if running.late:
                raise TimeoutError from None
            raise
        except (KeyboardInterrupt, SystemExit) as error:
            raise passed_on(error) from None
        finally:
            self._running.discard(running)
            if running.overran:
                telemetry.ended_after_all(self._provider, account)
            if task.cancelling():
                await _settled(task, late=running.late)

    def _end_at(self, ends: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = ends
        self._timer = asyncio.get_running_loop().call_later(max(0.0, ends - clock.boottime()), self._end_late)

    def _end_late(self) -> None:
        self._timer, self._next, now = None, math.inf, clock.boottime()
        for running in [each for each in self._running if each.ends <= now]:
            if not running.late:
                running.late, running.ends = True, now + LAST_WORDS
                running.task.cancel()
            else:
                running.overran, running.ends = True, math.inf
                telemetry.overran(self._provider, running.account)
        if (ends := min((each.ends for each in self._running), default=math.inf)) < math.inf:
            self._end_at(ends)


async def _settled(task: asyncio.Task[Any], *, late: bool) -> None:
    """What the function has left of cancellations: one that it asked for itself and did not wait for must not meet
    what is done with its result, and its deadline's is over. That of this process's end can still be seen."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    if late:
        task.uncancel()
