"""Threads for code of the user's, kept for the next call: a new thread for each would cost more than most of the code.

One waiting thread is woken at a time, and it wakes the next one before it begins, if more work waits. So work that
ends at once is done by few threads, and work that waits for something gets a thread each. The threads are daemons: what
hangs in one does not keep the process from ending.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

IDLE: Final = 10.0
"""Seconds after which a thread without work ends."""

Job: TypeAlias = Callable[[], None]


class KeptThreads:
    """Any number of threads, as many as work runs at the same time."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle_for = idle
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._idle: list[threading.Lock] = []
        self._coming = 0

    def begin(self, job: Job) -> None:
        """Have a thread do it. The job raises nothing.

        Raises RuntimeError: the system has no thread left for it. Where the system runs out of threads after that, the
        job waits for one that works.
        """
        with self._lock:
            self._jobs.append(job)
            try:
                self._wake()
            except RuntimeError:
                self._jobs.remove(job)
                raise

    def _wake(self) -> None:
        if self._coming:
            return
        if self._idle:
            self._idle.pop().release()
        else:
            threading.Thread(target=self._run, name="idem-code", daemon=True).start()
        self._coming += 1

    def _run(self) -> None:
        called = threading.Lock()
        called.acquire()
        while True:
            with self._lock:
                self._coming -= 1
            while (job := self._next(called)) is not None:
                job()
                # A thread that waits keeps nothing of what it has done.
                del job
            if not called.acquire(timeout=self._idle_for):
                with self._lock:
                    if called in self._idle:
                        self._idle.remove(called)
                        return
                called.acquire()

    def _next(self, called: threading.Lock) -> Job | None:
        with self._lock:
            if not self._jobs:
                self._idle.append(called)
                return None
            job = self._jobs.popleft()
            if self._jobs:
                # Where no thread can be started, this one goes on with them.
                with suppress(RuntimeError):
                    self._wake()
            return job


_threads: tuple[int, KeptThreads] | None = None


def kept() -> KeptThreads:
    """The threads of this process."""
    global _threads
    # A process that was forked has the object, but not its threads.
    if _threads is None or _threads[0] != os.getpid():
        _threads = os.getpid(), KeptThreads()
    return _threads[1]
