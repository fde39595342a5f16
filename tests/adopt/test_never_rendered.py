"""A row that SQL accepted and no worker ever rendered, at rest: back to work means back to be rendered."""

from uuid import UUID

import pytest
from fix_spine import Spine
from producers.application import Application, synced

from idem.outbox.operator import actions
from idem.sweeper.daemon import Sweeper


@pytest.fixture
async def at_rest(spine: Spine) -> UUID:
    """An intent whose time to start has passed before any worker saw it."""
    synced(spine.url, spine.catalogue)
    intent = UUID(str(Application(spine.url).once().intent_id))
    await spine.advance(2 * 86400)
    await Sweeper(spine.database, spine.catalogue).run_once()
    return intent


async def status(spine: Spine, intent: UUID) -> str:
    row = await spine.row(intent)
    assert row["first_sent_at"] is None
    return str(row["status"])


async def test_the_automatic_redrive(spine: Spine, at_rest: UUID) -> None:
    assert await status(spine, at_rest) == "held"
    await spine.execute(
        "UPDATE idem.outbox SET redrive_at = statement_timestamp(), start_before = statement_timestamp() + '1 h'"
    )
    assert (await spine.reconcile()).redriven == 1
    assert await status(spine, at_rest) == "unfrozen"
    await spine.work()
    assert spine.effects() == 1


async def test_a_new_provider_key_is_rendered_by_whoever_orders_it(spine: Spine, at_rest: UUID) -> None:
    before = await spine.row(at_rest)
    version = (await spine.one("SELECT version FROM idem.intents"))["version"]
    async with spine.database.connection() as connection:
        await actions.redrive(
            connection, spine.catalogue, at_rest, by="ada", reason="r", version=version, new_provider_key=True
        )
    row = await spine.row(at_rest)
    assert before is not None and row is not None
    assert (row["status"], row["generation"]) == ("pending", 2)
    assert row["provider_key"] != before["provider_key"]
    await spine.work()
    assert spine.effects() == 1
