"""A worker that renders is killed before its commit and after it: bytes are committed once, one effect (34)."""

import asyncio
import os
import signal

import kill_worker
import layers
import pytest
from fix_forking import started
from fix_line import target, through
from fix_spine import Spine, catalogue
from producers.application import Application, synced

from idem.testing.proxy import Direction, Proxy, ProxyAction

RUNS = int(os.environ.get("IDEM_KILL_RUNS", "6" if layers.thorough() else "2"))
FREEZE = b"decode(i.body, 'base64')"


class Watch:
    """Kills the worker at one point of the transaction in which it freezes a request."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.pid = 0
        self.committing: set[int] = set()
        self.freezing: set[int] = set()

    def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server":
            if FREEZE in data:
                self.freezing.add(number)
                if self.point == "rendered":
                    return self.kill()
            if number in self.freezing and b"COMMIT" in data:
                self.committing.add(number)
                if self.point == "committing":
                    return self.kill()
            if self.point == "committed" and self.freezing and number not in self.freezing:
                # A claim on another line could take the row in the moment between the commit and its answer.
                return "swallow"
        elif number in {"frozen": self.freezing, "committed": self.committing}.get(self.point, set()):
            return self.kill()
        return "pass"

    def kill(self) -> ProxyAction:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = 0
        return "cut"


@pytest.mark.quick
@pytest.mark.timeout(180 * RUNS)
@pytest.mark.parametrize("point", ["rendered", "frozen", "committing", "committed"])
async def test_a_killed_worker_leaves_it_to_be_rendered_or_to_be_sent(spine: Spine, point: str) -> None:
    synced(spine.url, catalogue(spine.bank.url))
    application = Application(spine.url)
    for run in range(RUNS):
        intent = application.accepted(f"k{run}", {"amount": 100 + run})
        watch = Watch(point)
        async with Proxy(target(spine.url), watch) as database:
            process = started(kill_worker.run, through(spine.url, database), spine.bank.url)
            watch.pid = process.pid or 0
            await asyncio.to_thread(process.join, 90)
            assert process.exitcode == -signal.SIGKILL, (point, process.exitcode)
        frozen = await spine.all("SELECT body FROM idem.requests WHERE intent_id = %(i)s", i=intent)
        status = (await spine.row_if_any(intent) or {"status": None})["status"]
        if point == "committed":
            assert len(frozen) == 1 and status == "pending"
        else:
            assert (frozen, status) == ([], "unfrozen")
        async with asyncio.timeout(30):  # the dead session's locks go when the server notices that it is gone
            while application.once(f"k{run}", {"amount": 100 + run}).decision != "replay":
                await spine.work()
        kinds = [kind for _, kind, _ in await spine.evidence(intent)]
        assert kinds == ["accepted", "rendered", "report"], (point, kinds)
        assert spine.effects() == run + 1
