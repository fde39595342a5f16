"""Hazards 5, 59, 60: another database, a forgotten claim, a clone; what may still be sent, and what must not."""

import asyncio

import psycopg
import pytest
from fix_restore import FAR, notices
from fix_spine import Spine

from idem.errors import StoreUnavailable
from idem.outbox.database.memory import Memory
from idem.outbox.database.pool import Database
from idem.outbox.recovery import guard, release


async def statuses(spine: Spine) -> dict[str, str]:
    return {row["operation"]: row["status"] for row in await spine.all("SELECT operation, status FROM idem.outbox")}


async def test_hazard_5_after_a_restore_only_harmless_rows_stay_queued(spine: Spine) -> None:
    spine.accepted("a", operation="pay.keyed")
    spine.accepted("b", operation="pay.keyless")
    await notices(spine, system_identifier=1)
    assert await statuses(spine) == {"pay.keyed": "pending", "pay.keyless": "unknown"}
    evidence = await spine.all("SELECT details FROM idem.evidence WHERE kind = 'database_changed'")
    assert [e["details"]["why"] for e in evidence] == ["another database cluster"]
    assert await spine.works() == 1, "the row that could have been sent before was not sent"
    await notices(spine)
    assert len(await spine.all("SELECT FROM idem.evidence WHERE kind = 'database_changed'")) == 1


async def test_hazard_60_resting_rows_are_suspect_too(spine: Spine) -> None:
    intent = await spine.sent("a", amount=-1, operation="pay.keyless")
    assert await spine.status(intent) == "held"
    await notices(spine, timeline=99)
    assert await spine.status(intent) == "unknown"
    assert (await spine.key(intent))["state"] == "unknown"


@pytest.mark.parametrize(("durability", "expected"), [("synchronous", "pending"), ("asynchronous", "unknown")])
async def test_hazard_60_a_new_timeline_alone(spine: Spine, durability: guard.Durability, expected: str) -> None:
    spine.accepted("a", operation="pay.keyless")
    await notices(spine, durability=durability, timeline=99)
    assert await statuses(spine) == {"pay.keyless": expected}


async def test_hazard_60_the_log_went_back(spine: Spine) -> None:
    spine.accepted("a", operation="pay.keyless")
    await notices(spine, moved=FAR)
    assert await statuses(spine) == {"pay.keyless": "unknown"}


async def test_an_operator_says_that_nothing_was_lost(spine: Spine) -> None:
    spine.accepted("a", operation="pay.keyless")
    await notices(spine, system_identifier=1)
    async with spine.database.connection() as connection:
        assert await release.release(connection, spine.catalogue, by="ann", reason="dump of a stopped system") == 1
        assert await release.release(connection, spine.catalogue, by="ann", reason="again") == 0
    assert await statuses(spine) == {"pay.keyless": "pending"}
    assert await spine.works() == 1


async def test_a_clone_is_not_worked_on_by_another_environment(spine: Spine) -> None:
    """Hazard 5 (d): staging's workers must not send production's rows."""
    spine.accepted("a")
    with pytest.raises(StoreUnavailable, match="production"):
        await notices(spine, environment="production")
    assert (await spine.work()).claimed == 0, "it stands in the claim's WHERE as well"


async def test_hazard_5_commits_of_daemons_are_durable_whatever_the_role_says(spine: Spine, db_url: str) -> None:
    async with spine.database.connection() as connection:
        name = await (await connection.execute("SELECT current_database()")).fetchone()
        assert name
        await connection.execute(f'ALTER DATABASE "{name[0]}" SET synchronous_commit = off')
        await connection.execute(f"ALTER DATABASE \"{name[0]}\" SET default_transaction_isolation = 'serializable'")
    fresh = Database(db_url, name="idem-test-durable")
    await fresh.open()
    async with fresh.connection() as connection:
        for setting, value in (("synchronous_commit", "on"), ("default_transaction_isolation", "read committed")):
            row = await (await connection.execute(f"SHOW {setting}")).fetchone()  # hazard 43 as well
            assert row == (value,)
    await fresh.close()


async def test_no_connection_passes_while_another_doubts_the_rows(spine: Spine, db_url: str) -> None:
    """It would be used to send rows that are about to be doubted."""
    spine.accepted("a", operation="pay.keyless")
    own = guard.Guard(spine.catalogue, "single")
    own._memory = Memory(moved=FAR)

    async def next_connection() -> None:
        await spine.run(own)

    with psycopg.connect(db_url) as other:
        other.execute("SELECT FROM idem.installation FOR UPDATE")
        first, second = asyncio.create_task(next_connection()), asyncio.create_task(next_connection())
        await asyncio.wait({first, second}, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert not first.done() and not second.done()
    await asyncio.gather(first, second)
    assert await statuses(spine) == {"pay.keyless": "unknown"}


async def test_what_was_not_doubted_is_noticed_by_the_next_connection(spine: Spine, db_url: str) -> None:
    """The first connection is given up in the middle."""
    spine.accepted("a", operation="pay.keyless")
    own = guard.Guard(spine.catalogue, "single")
    own._memory = Memory(moved=FAR)
    async with spine.database.connection() as connection, spine.database.connection() as another:
        with psycopg.connect(db_url) as other:
            other.execute("SELECT FROM idem.installation FOR UPDATE")
            first = asyncio.create_task(own(connection))
            await asyncio.wait({first}, timeout=1)
            assert not first.done()
            first.cancel()
            await asyncio.wait({first})
        await own(another)
    assert await statuses(spine) == {"pay.keyless": "unknown"}
