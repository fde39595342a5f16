"""An operation's own code hangs, crashes or takes long: it costs nobody else's answer, and no process its end."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from fix_spine import operation

from idem import Answer
from idem.outbox.domain.operation import FinalOutcome, OperationSpec
from idem.outbox.domain.states import Reason
from idem.outbox.settle import answer_rendering
from idem.outbox.settle.answer_rendering import Renderer
from idem.outcomes import Succeeded

GOOD = Answer(201, b"good")


def answering(name: str, answer: Callable[[FinalOutcome, str], Any]) -> OperationSpec:
    return operation(name, "keyed", answer=answer)


async def test_hanging_code_costs_no_other_operation_its_answer() -> None:
    """A fallback is an answer for ever: it must not depend on whose code hung in this process before."""
    forever = threading.Event()
    hanging = answering("hangs", lambda *_: forever.wait())
    renderer = Renderer()
    hung = [asyncio.create_task(renderer.render(hanging, Succeeded("p"), uuid4())) for _ in range(8)]
    await asyncio.sleep(0.2)
    fine = answering("fine", lambda *_: GOOD)
    for _ in range(3):
        assert (await renderer.render(fine, Succeeded("p"), uuid4())).answer == GOOD
    forever.set()
    for rendered in await asyncio.gather(*hung):
        assert rendered.letter is not None and rendered.letter.reason is Reason.ANSWER_FAILED


async def test_the_time_of_others_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty results at once, each of whose answers takes a quarter of the limit: all get their own."""
    monkeypatch.setattr(answer_rendering, "TIME_LIMIT", 0.4)
    nap = threading.Event()

    def slowly(*_: Any) -> Answer:
        nap.wait(0.1)
        return GOOD

    renderer, slow = Renderer(), answering("slow", slowly)
    rendered = await asyncio.gather(*(renderer.render(slow, Succeeded("p"), uuid4()) for _ in range(40)))
    assert [one.letter for one in rendered] == [None] * 40


@pytest.mark.parametrize(
    "error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), RecursionError(), ValueError("x")]
)
async def test_whatever_it_raises_is_a_fallback(error: BaseException) -> None:
    def raises(*_: Any) -> Answer:
        raise error

    renderer = Renderer()
    rendered = await asyncio.wait_for(renderer.render(answering("bad", raises), Succeeded("p"), uuid4()), 10)
    assert rendered.answer.status == 201
    assert rendered.letter is not None


HANGS = """
import asyncio, threading
from uuid import uuid4
from fix_spine import operation
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.domain.outcomes import Succeeded

async def main():
    renderer = Renderer()
    hangs = operation("hangs", "keyed", answer=lambda *_: threading.Event().wait())
    await renderer.render(hangs, Succeeded("p"), uuid4())

asyncio.run(main())
print("ended")
"""


@pytest.mark.quick
@pytest.mark.process
async def test_a_process_ends_although_such_code_hangs_in_it() -> None:
    """SIGTERM finishes what runs; code that never returns is not among what can be finished."""
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{HANGS}"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
