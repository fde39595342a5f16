"""Rows that wait to be rendered take turns by tenant too: a bulk run of SQL accepts is in nobody's way."""

from collections import Counter
from typing import Any

import psycopg
import pytest
from fix_spine import Spine
from producers.application import Application, synced
from schema import explained
from shares.queues import plant

from idem.outbox.worker.fairness import WIDTH
from idem.outbox.worker.freezing import BATCH, Freezer
from idem.outbox.worker.unfrozen import PICK, Source, pick

SOURCE = {"calls": ["pay.keyed"], "providers": ["keyed"], "accounts": ["keyed"], "origins": ["o"]}
PICKING = {**SOURCE, "environment": "test", "after": "m", "turns": WIDTH, "limit": BATCH}
ROWS = 300
"""What one node may read. A hundred tenants are looked at, twenty rows taken."""

RENDERED = "SELECT tenant_id FROM idem.outbox WHERE status = 'pending'"


async def picked(spine: Spine, after: str, limit: int = BATCH) -> tuple[Counter[str], str]:
    """Whose rows one pick takes, which is undone then."""
    source = Source("pay.keyed", "keyed", "keyed", spine.bank.url)
    async with spine.database.connection() as connection, connection.transaction(force_rollback=True):
        rows, following = await pick(connection, spine.catalogue, [source], after=after, limit=limit)
        found = await connection.execute(
            "SELECT tenant_id FROM idem.outbox WHERE id = ANY (%s)", [[each.row.id for each in rows]]
        )
        return Counter(tenant for (tenant,) in await found.fetchall()), following


async def test_a_bulk_run_of_one_tenant_is_in_nobodys_way(spine: Spine) -> None:
    """The real thing: accepted by SQL, rendered by a worker's own pass, a batch at a time."""
    synced(spine.url, spine.catalogue)
    application = Application(spine.url)
    for number in range(3 * BATCH):
        application.accepted(f"bulk-{number}", tenant="bulk")
    for number in range(5):
        application.accepted("k", tenant=f"other {number}")
    freezer = Freezer(spine.database, spine.catalogue)
    assert await freezer._batch() == (BATCH, BATCH, False)
    rendered = Counter(tenant for (tenant,) in application.rows(RENDERED))
    assert rendered == {"bulk": BATCH - 5, **{f"other {number}": 1 for number in range(5)}}
    assert await freezer.once() == 2 * BATCH + 5


async def test_each_tenant_gets_an_equal_part(spine: Spine) -> None:
    for tenant, rows in (("a", 100), ("b", 40), ("c", 60)):
        plant(spine.url, rows, tenant=tenant, status="unfrozen", origin=spine.bank.url)
    served, after = Counter[str](), ""
    for limit in [1, 2, 4, 5, 7, 8, 20] * 3:
        taken, after = await picked(spine, after, limit)
        assert taken.total() == limit
        served.update(taken)
    assert max(served.values()) - min(served.values()) <= 2


async def test_more_tenants_than_rows_may_be_taken_all_have_their_turn(spine: Spine) -> None:
    plant(spine.url, 500, tenant="bulk", status="unfrozen", origin=spine.bank.url)
    plant(spine.url, 90, due_in=-60, status="unfrozen", origin=spine.bank.url)
    served, after = Counter[str](), "m"
    for _ in range(5):
        taken, after = await picked(spine, after)
        served.update(taken)
    assert len(served) == 91
    assert all(count <= 2 for tenant, count in served.items() if tenant != "bulk")


async def test_what_others_render_is_passed_over_and_starves_nobody(spine: Spine) -> None:
    """Rows of an origin that this worker does not know stand before those of its own, in every tenant's part."""
    for tenant in ("a", "b"):
        plant(spine.url, 50, tenant=tenant, status="unfrozen", origin="another")
        plant(spine.url, 50, tenant=tenant, due_in=-60, status="unfrozen", origin=spine.bank.url)
    plant(spine.url, 200, due_in=-1800, status="unfrozen", origin="another")
    plant(spine.url, 3, tenant="z", due_in=-60, status="unfrozen", origin=spine.bank.url)
    seen = Counter[str]()
    after = "tenant"
    for _ in range(14):
        taken, after = await picked(spine, after)
        assert taken.total() == BATCH
        seen.update(taken)
    assert set(seen) == {"a", "b", "z"}


@pytest.mark.parametrize("statistics", ["none", "nearly empty", "fresh"])
def test_a_pick_reads_a_bounded_part_of_what_waits(
    db_url: str, connection: psycopg.Connection[Any], statistics: str
) -> None:
    if statistics == "nearly empty":
        plant(db_url, 20_000, tenant="t", status="held")
        plant(db_url, 10, status="unfrozen")
        connection.execute("ANALYZE idem.outbox")
        connection.commit()
    plant(db_url, 20_000, tenant="bulk", status="unfrozen")
    plant(db_url, 1000, due_in=-60, status="unfrozen")
    if statistics == "fresh":
        connection.execute("ANALYZE idem.outbox")
    for after in ("m", "tenant 000500"):
        nodes = explained.explain(connection, PICK, {**PICKING, "after": after})
        assert explained.faults(nodes, frozenset({"outbox", "intents"}), BATCH, rows=ROWS) == []
        assert max(node.rows for node in nodes if node.kind == "LockRows") == BATCH


def test_thousands_that_are_not_due_cost_a_pick_a_bounded_look(
    db_url: str, connection: psycopg.Connection[Any]
) -> None:
    plant(db_url, 20_000, due_in=3600, status="unfrozen")
    plant(db_url, 100, tenant="bulk", status="unfrozen")
    nodes = explained.explain(connection, PICK, {**PICKING, "after": "t"})
    assert explained.faults(nodes, frozenset({"outbox", "intents"}), BATCH, rows=ROWS) == []
