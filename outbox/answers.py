"""Rendering the stored answer: user code that runs before an immutable write, so under a time limit.

If it fails the row settles with the fallback answer and a dead letter: the effect comes first.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from idem.outbox.change import Letter
from idem.outbox.operation import Answer, Operation
from idem.outbox.outcomes import Refused, Succeeded
from idem.outbox.states import Reason

TIME_LIMIT = 2.0
"""Seconds that an operation's `answer` may take, from when it begins."""
TURN_LIMIT = 10.0
"""Seconds that it may wait for its turn: far below what a lease leaves after a call."""
HEADERS_LIMIT = 8192
BODY_LIMIT = 8 * 2**20
"""Bytes that a stored answer may have."""
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name of HTTP (RFC 9110, 5.1)."""
WITHOUT_CONTENT = (204, 205, 304)
"""Statuses whose answers have no body (RFC 9110)."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer, and the dead letter to open if it is the fallback."""

    answer: Answer
    letter: Letter | None = None


class Renderer:
    """Runs `answer` of operations in threads of its own, never in the event loop's default executor.

    Each operation has its own turns, so that code which hangs gives no other operation a fallback for ever; and the
    threads are daemons, so that it does not keep the process from ending.
    """

    def __init__(self, turns: int = 4) -> None:
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(turns))

    async def render(self, operation: Operation, outcome: Succeeded | Refused, intent_id: UUID) -> Rendered:
        """The operation's answer, or the fallback with the reason. Never raises."""
        try:
            answer = await self._run(operation, outcome, str(intent_id))
            _check(answer)
            return Rendered(answer)
        except Exception as error:  # user code may raise anything; the row must settle all the same
            note = f"{type(error).__name__}: {error}"[:500]
            letter = Letter(Reason.HANDLER_FAILED, {"handler": f"{operation.name}.answer", "error": note})
            return Rendered(fallback(outcome, intent_id), letter)

    async def _run(self, operation: Operation, outcome: Succeeded | Refused, intent: str) -> Answer:
        loop, turn = asyncio.get_running_loop(), self._turns[operation.name]
        await asyncio.wait_for(turn.acquire(), TURN_LIMIT)
        ended: asyncio.Future[Answer] = loop.create_future()

        def end(answer: Answer | None, error: BaseException | None) -> None:
            turn.release()
            if ended.done():
                return
            if error is not None:
                # A coroutine must not raise StopIteration, and an exit is not this code's to order.
                ended.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            elif answer is not None:
                ended.set_result(answer)
            else:
                ended.set_exception(TypeError("answer() returned None"))

        def work() -> None:
            answer, raised = None, None
            try:
                answer = operation.answer(outcome, intent)
            except BaseException as error:
                raised = error
            with suppress(RuntimeError):  # the loop has ended meanwhile, and nobody waits any more
                loop.call_soon_threadsafe(end, answer, raised)

        threading.Thread(target=work, name="idem-answer", daemon=True).start()
        return await asyncio.wait_for(ended, TIME_LIMIT)

    def close(self) -> None:
        """Nothing is kept: a thread that hangs is left behind and ends with the process."""


def fallback(outcome: Succeeded | Refused, intent_id: UUID) -> Answer:
    """What a client gets when the operation cannot say it: 201 or 402 with intent, state and reference."""
    body = {"intent": str(intent_id), "state": "completed", "provider_reference": outcome.reference}
    return Answer(201 if outcome.succeeded else 402, json.dumps(body).encode())


def _check(answer: object) -> None:
    if not isinstance(answer, Answer):
        raise TypeError(f"answer() returned {type(answer).__name__}, not an Answer")
    if not (isinstance(answer.status, int) and 200 <= answer.status < 500):
        raise ValueError(f"answer() returned status {answer.status}; 2xx to 4xx are stored")
    if not isinstance(answer.body, bytes) or len(answer.body) > BODY_LIMIT:
        raise ValueError(f"answer() must return bytes, at most {BODY_LIMIT}")
    if answer.status in WITHOUT_CONTENT and answer.body:
        raise ValueError(f"answer() returned a body with status {answer.status}, which has none")
    if sum(len(name) + len(value) for name, value in answer.headers.items()) > HEADERS_LIMIT:
        raise ValueError(f"answer() returned headers of more than {HEADERS_LIMIT} bytes, which clients refuse")
    # What cannot be sent would be no answer, for ever.
    for name, value in answer.headers.items():
        if not (HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable() and value == value.strip()):
            raise ValueError(f"answer() returned a header {name!r} that HTTP cannot carry")
