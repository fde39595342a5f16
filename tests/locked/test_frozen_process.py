"""A process that is frozen while it takes its turn in a lane with an exact limit keeps nobody else from theirs."""

import asyncio
import os
import signal
import sys
from dataclasses import replace

import psycopg
import pytest
from fix_spine import Spine
from fix_waiting import until

from idem.outbox.database.pool import Database
from idem.outbox.domain.contract import LookupRule
from idem.outbox.domain.lane_scopes import LaneScope, lane_scopes
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.reconciler import due

WORKER = """
import asyncio, json, sys
from idem.outbox.values import clock
from idem.outbox.worker import claim
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.domain.lane_scopes import LaneScope

async def main(url, lane):
    database = Database(url, name="frozen", timeouts=Timeouts(idle_in_transaction=600, lock=600, statement=600))
    await database.open()
    async with database.connection() as connection:
        print("ready", flush=True)
        await claim.claim(connection, lane, token=claim.new_token(), holder="frozen", lease=60, limit=1,
                          now=clock.boottime())

fields = json.loads(sys.argv[2])
asyncio.run(main(sys.argv[1], LaneScope(**{**fields, "operations": tuple(fields["operations"])})))
"""


def exact(spine: Spine) -> LaneScope:
    return replace(lane_scopes(spine.catalogue)["keyed", "keyed"][0], exact=True, concurrency=4)


async def one(database: Database, lane: LaneScope) -> list[OutboxRow]:
    async with database.connection() as connection:
        found = await claims.claim(
            connection, lane, token=claims.new_token(), holder="other", lease=60, limit=1, now=clock.boottime()
        )
    assert all(each.request.body for each in found)
    return [each.row for each in found]


@pytest.mark.quick
@pytest.mark.parametrize("who", ["worker", "reconciler"])
async def test_a_frozen_worker_holds_no_turn(spine: Spine, who: str) -> None:
    import json
    from dataclasses import asdict

    lane = exact(spine)
    for number in range(3):
        spine.accepted(f"k{number}")
    await one(spine.database, lane)  # the lane has its row now
    with psycopg.connect(spine.url) as session:
        session.execute("SELECT FROM idem.lanes WHERE provider = 'keyed' AND account = 'keyed' FOR NO KEY UPDATE")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORKER, spine.url, json.dumps(asdict(lane)), stdout=asyncio.subprocess.PIPE
        )
        try:
            await until(lambda: waits(spine))
            os.kill(process.pid, signal.SIGSTOP)
            session.rollback()
            # Its statement has what it waited for, and nobody reads its answer.
            await until(lambda: spine.all("SELECT FROM idem.outbox WHERE claimed_by = 'frozen'"))
            if who == "worker":
                assert len(await asyncio.wait_for(one(spine.database, lane), 30)) == 1
            else:
                async with spine.database.connection() as connection:
                    claim = await asyncio.wait_for(
                        due.claim_due(
                            connection, lane, replace(spine.catalogue.providers["keyed"].contract, lookup=LookupRule()),
                            token=claims.new_token(), holder="other", lease=60, limit=1, now=clock.boottime(),
                        ), 30,
                    )  # fmt: skip
                assert claim == []
        finally:
            os.kill(process.pid, signal.SIGKILL)
            await process.communicate()


async def waits(spine: Spine) -> bool:
    """Whether the process waits for its turn."""
    return bool(
        await spine.all("SELECT FROM pg_stat_activity WHERE application_name = 'frozen' AND wait_event_type = 'Lock'")
    )


async def test_an_exact_limit_is_never_exceeded_by_many_at_once(spine: Spine) -> None:
    lane = exact(spine)
    for number in range(12):
        spine.accepted(f"k{number}")
    claim = await asyncio.gather(*(one(spine.database, lane) for _ in range(8)))
    assert sum(map(len, claim)) == 4
