"""What a drained job costs a worker at the least: steps and statements, counted, so that it cannot slip back unseen.

CPU is measured by measure/claim_and_settle.py and by `idem bench`.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog
from fix_spine import Spine
from fix_waiting import until

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.observe import telemetry
from idem.outbox.providers.send import SendProvider
from idem.outbox.settle.commonest import COMPLETE_SUCCEEDED
from idem.outbox.worker.claim import CLAIM, CLAIM_NEXT
from idem.outbox.worker.worker import Worker
from idem.outcomes import Succeeded

JOBS = 500
STEPS = 340
"""Functions of Python and of C that the loop's thread enters for a job, from claim to settled: about 290 now."""
BATCHES = 20
"""Statements that end up to 100 jobs each. A claim is for the slots that are free, so there are more of those."""


@pytest.fixture(autouse=True)
def lines_of_a_daemon() -> Iterator[None]:
    """As a daemon writes them at the level of warnings."""
    before = structlog.get_config()
    telemetry.set_up(json=True, level="warning")
    yield
    structlog.configure(**before)


async def test_a_drained_job_takes_few_steps_and_its_part_of_a_full_batch(spine: Spine) -> None:
    async def nothing(request: Any, call: Any) -> Succeeded:
        call.start()
        return Succeeded("pay_1")

    keyed = spine.catalogue.providers["keyed"]
    sends = SendProvider(keyed.contract, keyed.accounts, nothing)
    spine.catalogue = replace(spine.catalogue, providers={**spine.catalogue.providers, "keyed": sends})
    spine.acceptor = type(spine.acceptor)(spine.catalogue.operations, spine.catalogue.providers)
    for number in range(JOBS):
        spine.accepted(f"k{number}")

    executed: Counter[str] = Counter()
    entered: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            entered[frame.f_code.co_qualname] += 1
            if frame.f_code.co_qualname == "AsyncCursor.execute":
                executed[frame.f_locals.get("query", "")] += 1
        elif event == "c_call":
            entered[argument.__qualname__] += 1

    worker = Worker(spine.database, spine.catalogue, WorkerSettings(lease=60, margin=1, slots=100, poll=5.0))
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    sys.setprofile(count)
    try:
        await until(lambda: worker.settler.fates["settled"] == JOBS)
    finally:
        sys.setprofile(None)
        stop.set()
        await running
    assert sum(entered.values()) / JOBS < STEPS, "\n".join(map(str, entered.most_common(70)))
    assert executed[COMPLETE_SUCCEEDED] <= BATCHES
    assert executed[CLAIM] + executed[CLAIM_NEXT] <= 4 * BATCHES
    assert entered["Thread.start"] <= BATCHES, "threads are kept"
    assert entered["_query2pg_nocache"] <= BATCHES, "the driver knows these statements"
