"""Rendering the stored answer: user code that runs before an immutable write, so under a time limit.

If it fails the row settles with the fallback answer and a dead letter: the effect comes first.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from idem.outbox.change import Letter
from idem.outbox.operation import Answer, Operation
from idem.outbox.outcomes import Refused, Succeeded
from idem.outbox.states import Reason

TIME_LIMIT = 2.0
"""Seconds that an operation's `answer` may take."""
BODY_LIMIT = 8 * 2**20
"""Bytes that a stored answer may have."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer, and the dead letter to open if it is the fallback."""

    answer: Answer
    letter: Letter | None = None


class Renderer:
    """Runs `answer` of operations in threads of its own, never in the event loop's default executor."""

    def __init__(self, threads: int = 4) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="idem-answer")

    async def render(self, operation: Operation, outcome: Succeeded | Refused, intent_id: UUID) -> Rendered:
        """The operation's answer, or the fallback with the reason. Never raises."""
        try:
            future = asyncio.get_running_loop().run_in_executor(
                self._threads, operation.answer, outcome, str(intent_id)
            )
            answer = await asyncio.wait_for(future, TIME_LIMIT)
            _check(answer)
            return Rendered(answer)
        except Exception as error:  # user code may raise anything; the row must settle all the same
            note = f"{type(error).__name__}: {error}"[:500]
            letter = Letter(Reason.HANDLER_FAILED, {"handler": f"{operation.name}.answer", "error": note})
            return Rendered(fallback(outcome, intent_id), letter)

    def close(self) -> None:
        """Let the threads end; one that hangs is left behind."""
        self._threads.shutdown(wait=False, cancel_futures=True)


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
    for name, value in answer.headers.items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ValueError(f"answer() returned an unprintable header {name!r}")
