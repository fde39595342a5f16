"""What tenants did: counted in memory, written together, shown by `idem tenants top`."""

import asyncio
import re
import typing
from typing import Any

import psycopg
import pytest
from fix_desk import Desk
from fix_settings import with_constants
from fix_spine import Spine
from fix_tables import Tables
from fix_waiting import until
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from idem.cli import tenants
from idem.decisions import Accepted
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.config.settings import SweeperSettings
from idem.outbox.database.pool import AWAY, Database
from idem.outbox.tenants.limits import TenantCounter, TenantLimits
from idem.sweeper.daemon import Sweeper

SUM = """
SELECT coalesce(sum(requests), 0)::int AS requests, coalesce(sum(mismatch), 0)::int AS mismatch,
       count(DISTINCT tenant_id)::int AS tenants FROM idem.tenant_usage
"""


def of(database: Database) -> TenantLimits:
    return TenantLimits(database, ApiSettings())


async def total(database: Database) -> tuple[int, int, int]:
    return tuple((await Tables(database).one(SUM)).values())


def test_every_count_has_its_column_and_its_choice(db_url: str) -> None:
    with psycopg.connect(db_url) as connection:
        cursor = connection.execute("SELECT * FROM idem.tenant_usage")
        assert cursor.description is not None
        columns = [each.name for each in cursor.description]
    assert columns == ["tenant_id", "hour", *TenantCounter]
    assert typing.get_args(tenants.RevokedBy) == ("misuse", *TenantCounter)
    assert [name for name, _ in tenants.COLUMNS] == ["misuse", *TenantCounter]


@pytest.mark.parametrize("what", TenantCounter)
async def test_each_kind_is_written_as_itself(database: Database, what: TenantCounter) -> None:
    counts = of(database)
    for _ in range(3):
        counts.count("t", what)
    await counts.flush()
    counts.count("t", what)
    await counts.flush()
    row = await Tables(database).value("SELECT to_jsonb(u) FROM idem.tenant_usage u")
    assert {name: n for name, n in row.items() if name not in ("tenant_id", "hour") and n} == {what.value: 4}
    assert row["hour"].endswith(":00:00+00:00")


async def test_all_tenants_are_written_in_one_statement(counted: Any) -> None:
    counts, before = of(counted), counted.wanted
    for number in range(3000):
        counts.count(f"t{number}", TenantCounter.REQUESTS)
    await counts.flush()
    await counts.flush()
    assert counted.wanted == before + 1
    assert await total(counted) == (3000, 0, 3000)


async def test_two_processes_at_once_lose_nothing_and_never_wait_crosswise(database: Database) -> None:
    """Written in the order of tenants, whatever the order in which they came."""
    one, two = of(database), of(database)

    async def write(counts: TenantLimits, names: list[str]) -> None:
        for _ in range(15):
            for name in names:
                counts.count(name, TenantCounter.REQUESTS)
            await counts.flush()

    names = [f"t{number}" for number in range(400)]
    three = of(database)
    with capture_logs() as lines:
        await asyncio.gather(write(one, names), write(two, names[::-1]), write(three, names[200:] + names[:200]))
    assert lines == []
    # What another process held just then is written with the next flush.
    for each in (one, two, three):
        await each.flush()
    assert await total(database) == (3 * 15 * 400, 0, 400)


async def test_an_outage_keeps_the_counts_for_a_later_write(counted: Any, outage: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("idem.outbox.tenants.limits.INTERVAL", 0.1)
    counts, stop = of(counted), asyncio.Event()
    counts.count("t", TenantCounter.MISMATCH)

    async def written(n: int) -> bool:
        try:
            return (await total(counted))[1] == n
        except AWAY:
            return False

    running = asyncio.create_task(counts.run(stop))
    try:
        await until(lambda: written(1))
        with capture_logs() as lines, outage():
            for _ in range(4):
                counts.count("t", TenantCounter.MISMATCH)
            await until(lambda: any(line["event"] == "database_away" for line in lines))
            counts.count("t", TenantCounter.MISMATCH)
            await asyncio.sleep(1)
            assert len([line for line in lines if line["event"] == "database_away"]) == 1
            assert not [line for line in lines if line["event"] == "broken"]
            assert not running.done()
        await until(lambda: written(6))
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)


async def test_what_was_counted_last_is_written_at_the_end(database: Database) -> None:
    counts, stop = of(database), asyncio.Event()
    running = asyncio.create_task(counts.run(stop))
    await asyncio.sleep(0)
    counts.count("t", TenantCounter.REQUESTS)
    stop.set()
    await asyncio.wait_for(running, 30)
    assert await total(database) == (1, 0, 1)


async def test_an_end_during_an_outage_is_an_end(counted: Any, outage: Any) -> None:
    counts, stop = of(counted), asyncio.Event()
    counts.count("t", TenantCounter.REQUESTS)
    with outage():
        stop.set()
        await asyncio.wait_for(counts.run(stop), 30)


async def test_ib_161_tenants_add_no_series(database: Database) -> None:
    counts = TenantLimits(database, ApiSettings.model_validate({"limits": {"requests": 1, "active_keys": 1}}))

    async def busy(first: int, last: int) -> int:
        for number in range(first, last):
            counts.count(f"tenant {number}", TenantCounter.MISMATCH)
            counts.admit(f"tenant {number}")
            counts.may_create(f"tenant {number}")
        await counts.refresh()
        await counts.flush()
        return sum(len(metric.samples) for metric in REGISTRY.collect())

    assert await busy(0, 1) == await busy(1, 5000)
    assert "tenant 4999" not in str([sample.labels for metric in REGISTRY.collect() for sample in metric.samples])


async def test_ib_132_two_tenants_never_meet_under_one_key(spine: Spine) -> None:
    """Same key, same operation, same body: two intents, two effects, and each its own answer."""
    first = await asyncio.to_thread(spine.accept, "same", tenant="a")
    second = await asyncio.to_thread(spine.accept, "same", tenant="b")
    assert isinstance(first, Accepted) and isinstance(second, Accepted)
    assert first.intent_id != second.intent_id
    await spine.work()
    assert await spine.works() == 2
    assert len({row["provider_key"] for row in await spine.all("SELECT provider_key FROM idem.requests")}) == 2
    answers: list[Any] = [await asyncio.to_thread(spine.accept, "same", tenant=tenant) for tenant in ("a", "b")]
    assert [each.intent_id for each in answers] == [first.intent_id, second.intent_id]
    assert answers[0].answer.body != answers[1].answer.body
    # Other content under the other's key is nobody's mismatch but its own.
    assert type(await asyncio.to_thread(spine.accept, "same", 200, tenant="c")).__name__ == "Accepted"


async def fill(database: Database) -> None:
    counts = of(database)
    for tenant, what, n in (
        ("good", TenantCounter.REQUESTS, 500), ("good", TenantCounter.CREATED, 400),
        ("bad", TenantCounter.MISMATCH, 30),
        ("worse", TenantCounter.MISMATCH, 10), ("worse", TenantCounter.KEY_MISSING, 40),
        ("odd", TenantCounter.SUSPICIOUS_KEY, 1),
    ):  # fmt: skip
        for _ in range(n):
            counts.count(tenant, what)
    await counts.flush()


async def test_top_shows_who_misuses_keys_most(desk: Desk, database: Database) -> None:
    await fill(database)
    found = await desk.cli("tenants", "top", "--json")
    assert found.code == 0, found.err
    assert [(each["tenant_id"], each["misuse"]) for each in found.data["tenants"]] == [
        ("worse", 50), ("bad", 30), ("odd", 1),
    ]  # fmt: skip
    assert found.data["by"] == "misuse"
    by_mismatch = await desk.cli("tenants", "top", "--by", "mismatch", "--json")
    assert [each["tenant_id"] for each in by_mismatch.data["tenants"]] == ["bad", "worse"]
    by_requests = await desk.cli("tenants", "top", "--by", "requests", "--limit", "1", "--json")
    assert [(each["tenant_id"], each["created"]) for each in by_requests.data["tenants"]] == [("good", 400)]
    lines = (await desk.cli("tenants", "top")).out.splitlines()
    assert [line.split()[0] for line in lines] == ["tenant", "worse", "bad", "odd"]
    # What is zero for all of them has no column.
    assert re.split(" {2,}", lines[0]) == ["tenant", "misuse", "other content", "no key", "personal key"]


async def test_top_is_about_a_time(desk: Desk, database: Database) -> None:
    await fill(database)
    await desk.spine.all(
        "UPDATE idem.tenant_usage SET hour = hour - interval '2 days' WHERE tenant_id = 'bad' RETURNING 1"
    )
    assert "\nbad " not in (await desk.cli("tenants", "top")).out
    assert "\nbad " in (await desk.cli("tenants", "top", "--since", "3d")).out
    assert (await desk.cli("tenants", "top", "--by", "limited")).out == "no tenant has any limited in this time\n"
    wrong = await desk.cli("tenants", "top", "--since", "yesterday")
    assert wrong.code == 2
    assert "24h" in wrong.err or "2h" in wrong.err
    assert (await desk.cli("tenants", "top", "--by", "wickedness")).code == 2


async def test_hours_past_their_time_are_deleted_in_batches(spine: Spine, database: Database) -> None:
    await fill(database)
    await spine.execute(
        "INSERT INTO idem.tenant_usage (tenant_id, hour) SELECT 't', date_trunc('hour', now(), 'UTC')"
        " - interval '31 days' - n * interval '1 hour' FROM generate_series(1, 250) AS n"
    )
    done = await Sweeper(database, spine.catalogue, with_constants(SweeperSettings(), batch=100)).run_once()
    assert done.tenant_hours == 250
    assert (await total(database))[2] == 4
