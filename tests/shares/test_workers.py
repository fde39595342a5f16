"""Three workers, a bulk run that keeps all of them busy, and tenants who come meanwhile."""

import asyncio

from fix_spine import Spine
from fix_waiting import running
from shares.queues import plant

from idem.outbox.worker.worker import Worker

BULK, OTHERS = 1500, 20
LEFT = "SELECT count(*) AS n FROM idem.outbox WHERE tenant_id = 'bulk' AND status = 'pending'"
OPEN = "SELECT count(*) AS n FROM idem.outbox WHERE tenant_id <> 'bulk'"
DONE = "SELECT count(*) AS n FROM idem.intents WHERE tenant_id <> 'bulk' AND state = 'completed'"


async def test_who_comes_during_a_bulk_run_does_not_wait_for_its_end(spine: Spine) -> None:
    """In the order of waiting the first of them would be called after the last row of the bulk run."""
    plant(spine.url, BULK, tenant="bulk", origin=spine.bank.url)
    settings = spine.settings.model_copy(update={"slots": 2, "poll": 0.05})
    workers = [Worker(spine.database, spine.catalogue, settings) for _ in range(3)]
    async with running(*workers):
        while (await spine.one(LEFT))["n"] > BULK - 50:
            await asyncio.sleep(0.05)
        for number in range(OTHERS):
            await asyncio.to_thread(spine.accept, f"k{number}", tenant=f"other {number % 4}")
        while (await spine.one(OPEN))["n"] > 0:
            assert (await spine.one(LEFT))["n"] > 0
            await asyncio.sleep(0.02)
        assert (await spine.one(LEFT))["n"] > 0
        assert (await spine.one(DONE))["n"] == OTHERS
