"""What retention leaves of a flow: everything while a step is open, and the ends of its steps for ever."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from fix_desk import Desk
from fix_webhooks import Hooks, event, hooking
from flows.order import Flows
from ledger.books import counts, keyed, listed

from idem.outbox.api import intents
from idem.outbox.config.settings import SweeperSettings
from idem.sweeper.daemon import Sweeper

LONG_AGO = """
SET LOCAL session_replication_role = replica;
UPDATE idem.evidence SET at = at - interval '500 days';
UPDATE idem.events SET created_at = created_at - interval '500 days';
UPDATE idem.requests SET created_at = created_at - interval '500 days';
"""
COUNTED = """
SELECT (SELECT count(*) FROM idem.evidence) AS evidence, (SELECT count(*) FROM idem.events) AS events,
       (SELECT count(*) FROM idem.requests) AS requests, (SELECT count(*) FROM idem.steps) AS steps
"""
OLD_UUID7 = """
CREATE OR REPLACE FUNCTION idem.uuid7() RETURNS uuid LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp() - interval '500 days') * 1000)::bigint), 12, '0') || '7'
            || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid $$
"""


@pytest.fixture
async def hooks(desk: Desk, flows: Flows) -> AsyncIterator[Hooks]:
    listed(flows.spine)
    async with hooking(desk) as found:
        yield found


async def age(flows: Flows) -> dict[str, Any]:
    """Let 500 days pass for what retention looks at, and a sweeper come by; what there is before and after."""
    before = await flows.spine.one(COUNTED)
    async with flows.spine.database.connection() as connection, connection.transaction():
        for statement in LONG_AGO.strip().split(";\n"):
            if statement.strip(" ;\n"):
                await connection.execute(statement)  # type: ignore[call-overload]
    await Sweeper(flows.spine.database, flows.spine.catalogue, SweeperSettings()).run_once()
    return {name: (number, (await flows.spine.one(COUNTED))[name]) for name, number in before.items()}


async def made(flows: Flows, *, times: int) -> UUID:
    """A flow of 500 days ago, by the ids of everything that was made for it."""
    await flows.spine.execute(OLD_UUID7)
    intent = flows.accepted()
    await flows.work(times=times)
    return intent


async def test_an_open_flow_keeps_everything(flows: Flows, hooks: Hooks) -> None:
    """The event of its charge still finds it, is compared, and is told as a later fact if it is one."""
    intent = await made(flows, times=1)
    left = await age(flows)
    assert all(before == after for before, after in left.values()), left
    reference = await flows.spine.value("SELECT provider_reference FROM idem.steps")
    assert await hooks.fate(event(None, reference=reference), "evt_1") == "agrees"
    assert await hooks.fate(event(None, "declined", reference), "evt_2") == "conflict"
    assert (await flows.intent(intent))["state"] == "in_progress"


async def test_the_ends_of_the_steps_are_the_ledger(flows: Flows, hooks: Hooks) -> None:
    """Evidence, events and requests of a flow that has ended go; its steps are matched by their references for ever."""
    intent = await made(flows, times=4)
    assert (await flows.intent(intent))["state"] == "completed"
    left = await age(flows)
    assert (left["evidence"][1], left["events"][1], left["requests"][1]) == (0, 0, 0)
    assert left["steps"] == (3, 3)
    assert counts(await keyed(flows.spine)) == {"matched": 3}
    found = await flows.spine.run(intents.intent, "t", intent)
    assert found is not None and [step["outcome"] for step in found["steps"]] == ["succeeded"] * 3
    assert (await hooks.desk.cli("intents", "show", intent, code=0)).out.count("succeeded") >= 3
    reference = found["steps"][1]["provider_reference"]
    (by_name,) = (await hooks.desk.cli("find", reference, "--json", code=0)).data["intents"]
    assert by_name["id"] == str(intent)


@pytest.mark.parametrize("change", ["DELETE FROM idem.steps", "UPDATE idem.steps SET outcome = 'refused'"])
async def test_nobody_deletes_or_changes_the_end_of_a_step(flows: Flows, change: str) -> None:
    flows.accepted()
    await flows.work()
    with pytest.raises(Exception, match="idem refuses this"):
        await flows.spine.execute(change)
