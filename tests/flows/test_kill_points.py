"""A flow of four steps is killed before and after each of its statements, and resumes at the right step (P1, P2).

The process has all daemons. A proxy in front of PostgreSQL counts what they send, and kills the process when the n-th
message arrives, or when its answer does. The last step is always refused, so that the charge is refunded. Against both
kinds of bank, and with the first answer of each step lost or not. A run is a message, and before or after it;
`IDEM_FLOW_KILLS=400` draws so many of them by `IDEM_FLOW_SEED`, 2000 is all of them.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from typing import Any

import layers
import pytest
from fix_accept import Acceptor
from fix_forking import started
from fix_line import target, through
from fix_spine import Spine
from flows import killed

from idem.decisions import Replay
from idem.testing.proxy import Direction, Proxy, ProxyAction

RUNS = int(os.environ.get("IDEM_FLOW_KILLS", "40" if layers.thorough() else "2"))
SEED = os.environ.get("IDEM_FLOW_SEED", "1")
MESSAGES = {False: 260, True: 600}
"""More than all daemons send until the flow ends: about 240, or 550 if the first answer of each step is lost."""
WANTED = {"charge": 1, "ship": 1, "receipt": 1, "refund": 1}


def steps_made(spine: Spine, key: str) -> Counter[str]:
    """How often the bank has carried out each step of this run's flow."""
    requests = {each.id: each.path.partition("step=")[2] for each in spine.bank.log.requests}
    made = (each for each in spine.bank.log.payments() if each.status != "declined")
    return Counter(requests[each.request] for each in made)


class Killing:
    """Kills the process at one message of the database's line."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after, self.pid, self.sent, self.done = at, after, 0, 0, False
        self.in_time = True
        self._answers: set[int] = set()

    def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server":
            self.sent += 1
            if self.sent == self.at and self.pid:
                if not self.after:
                    return self._kill()
                self._answers.add(number)
        elif number in self._answers:
            return self._kill()
        return "cut" if self.done else "pass"

    def _kill(self) -> ProxyAction:
        if not self.done:
            self.done = True
            os.kill(self.pid, signal.SIGKILL)
        return "cut"


@pytest.mark.fuzz
@pytest.mark.quick
@pytest.mark.timeout(120 + 30 * RUNS)
@pytest.mark.parametrize("lost", [False, True], ids=["answered", "lost"])
@pytest.mark.parametrize("kind", ["keyed", "keyless"])
async def test_a_killed_flow_goes_on_at_its_open_step(spine: Spine, kind: str, lost: bool) -> None:
    every = [(at, after) for at in range(1, MESSAGES[lost] + 1) for after in (False, True)]
    points = random.Random(f"{SEED} {kind} {lost}").sample(every, min(RUNS, len(every)))
    in_time = 0
    for at, after in points:
        killing = Killing(at, after=after)
        await one_run(spine, kind, killing, lost=lost, name=f"{kind}-{at}-{after}")
        in_time += killing.in_time
    sys.stderr.write(
        f"{len(points)} of {len(every)} points, {in_time} before the end of the flow: {kind}, "
        f"{'lost' if lost else 'answered'}\n"
    )


async def one_run(spine: Spine, kind: str, killing: Killing, *, lost: bool, name: str) -> None:
    before = steps_made(spine, name)
    async with (
        Proxy(target(spine.url), killing) as database,
        Proxy(("127.0.0.1", spine.bank.port)) as bank,
    ):
        spine.catalogue = killed.catalogue(f"http://127.0.0.1:{bank.port}")
        spine.acceptor = Acceptor(spine.catalogue.operations, spine.catalogue.providers)
        for step in (*killed.STEPS, "refund"):
            end = "decline" if step == "notify" else None
            faults: list[Any] = [*(["act_then_drop"] if lost and end is None else []), *([end] * 40 if end else [])]
            if faults:
                spine.bank.script(lambda r, step=step: r.path.endswith(f"step={step}"), faults)
        spine.accepted(name, operation=f"order.{kind}")
        process = started(killed.run, through(spine.url, database), f"http://127.0.0.1:{bank.port}")
        killing.pid = process.pid or 0
        for _ in range(400):
            if killing.done or killing.sent > MESSAGES[lost] or isinstance(ask(spine, name, kind), Replay):
                break
            await asyncio.sleep(0.02)
        if not killing.done:
            os.kill(killing.pid, signal.SIGKILL)
            killing.done, killing.in_time = True, False
        await asyncio.to_thread(process.join, 60)
        await asyncio.sleep(0.05)  # what had left may still be acted upon by the bank
        await settle(spine, name, kind)
        made = steps_made(spine, name) - before
        assert made == WANTED, (killing.at, killing.after, made)
        decided = ask(spine, name, kind)
        assert isinstance(decided, Replay)
        assert decided.answer.status == 402


def ask(spine: Spine, name: str, kind: str) -> Any:
    return spine.accept(name, operation=f"order.{kind}")


async def settle(spine: Spine, name: str, kind: str) -> None:
    for _ in range(30):
        if isinstance(ask(spine, name, kind), Replay):
            return
        await spine.sweep(after=200)
        await spine.reconcile(hasten=True)
        await spine.work()
    raise AssertionError("it did not settle")
