"""An event loop in a thread of its own, for work that synchronous and asynchronous callers wait for alike."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class BackgroundLoop:
    """Runs coroutines in its thread, which begins at once. `close`, or `with`, ends it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run this and wait for it. Raises what it raises; an interrupted caller cancels it."""
        sent = self.send(work)
        try:
            return sent.result()
        except BaseException:
            sent.cancel()
            raise

    async def call_async(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The same for a caller with a loop of its own."""
        return await asyncio.wrap_future(self.send(work))

    def send(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run this and do not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""

        async def end() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        self.call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
