"""What one call costs at the least: steps and connections, counted, so that it cannot slip back unseen.

Times are measured by measure/http_calls.py.
"""

import sys
from collections import Counter
from typing import Any

import pytest
from calls.conftest import POST
from fix_server import served
from fix_waiting import stopping

from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import Contract
from idem.outbox.values import clock
from idem.outcomes import Succeeded

CALLS = 100
STEPS = 600
"""Functions of Python and of C that are entered for a call and its outcome: about 480 now, and 4,600 with httpx and a
connection for each."""


async def test_a_call_takes_few_steps_and_no_task_timer_or_connection_of_its_own(
    bank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(lambda _: (201, b'{"id": "p-1"}')) as origin:  # in a thread of its own: its steps are not counted
        provider = bank(origin, contract=Contract("bank", keep_alive=60.0))
        async with stopping(Lane(provider, provider.account, slots=1, margin=0.5)) as lane:
            entered: Counter[str] = Counter()

            def count(frame: Any, event: str, argument: Any) -> None:
                if event == "call":
                    entered[frame.f_code.co_qualname] += 1
                elif event == "c_call":
                    entered[argument.__qualname__] += 1

            for number in range(CALLS + 1):
                if number == 1:  # the first makes the connection, and loads what is loaded once
                    sys.setprofile(count)
                outcome, _ = await lane.send(number, POST, lease_ends=clock.boottime() + 60, start=lambda: True)
                assert outcome == Succeeded("p-1")
            sys.setprofile(None)
    assert sum(entered.values()) / CALLS < STEPS, entered.most_common(30)
    assert entered["socket.send"] == CALLS, "head and body leave together"
    for never in ("connect", "Task.__init__", "Timeout.__aenter__", "BaseEventLoop.create_task", "Thread.start"):
        assert entered[never] == 0, never
    assert entered["BaseEventLoop.call_at"] <= CALLS + 1, "one timer a call"
