"""A row that SQL accepted and no worker ever rendered, at rest: back to work means back to be rendered."""

from uuid import UUID

import pytest
from fix_spine import Spine
from producers.application import Application, synced


@pytest.fixture
async def at_rest(spine: Spine) -> UUID:
    """An intent whose time to start has passed before any worker saw it."""
    synced(spine.url, spine.catalogue)
    intent = UUID(str(Application(spine.url).once().intent_id))
    await spine.advance(2 * 86400)
    await spine.sweep()
    return intent


async def test_the_automatic_redrive(spine: Spine, at_rest: UUID) -> None:
    assert await spine.status(at_rest) == "held"
    await spine.execute(
        "UPDATE idem.outbox SET redrive_at = statement_timestamp(), start_before = statement_timestamp() + '1 h'"
    )
    assert (await spine.reconcile()).redriven == 1
    assert await spine.status(at_rest) == "unfrozen"
    assert await spine.works() == 1


async def test_a_new_provider_key_is_made_by_the_worker_that_renders_it(spine: Spine, at_rest: UUID) -> None:
    before = await spine.row(at_rest)
    await spine.act("redrive", at_rest, new_provider_key=True)
    assert await spine.status(at_rest) == "unfrozen"
    assert await spine.works() == 1
    made = "SELECT generation, provider_key FROM idem.requests WHERE intent_id = %(i)s"
    (made_now,) = await spine.all(made, i=at_rest)
    assert made_now["generation"] == 2
    assert made_now["provider_key"] != before["provider_key"]
