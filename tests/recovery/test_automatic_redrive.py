"""Hazard 60, P1: a row that waits for its automatic redrive still has it after a change of the database."""

from datetime import datetime
from uuid import UUID

import pytest
from fix_restore import lossless, notices
from fix_spine import Spine

from idem.decisions import Replay
from idem.outbox.domain.transition import Evidence
from idem.outbox.observe import after_commit
from idem.outbox.settle import decide
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import lock
from idem.sweeper.daemon import Sweeper


async def to_be_redriven(spine: Spine, operation: str) -> UUID:
    """Its call was lost, and the provider has not carried it out: at rest until its redrive is due."""
    intent = await spine.sent(operation=operation, faults=["drop_before_acting"])
    await spine.advance(200)
    row = await spine.row(intent) or {}
    assert row["status"] == "unknown"
    async with spine.database.connection() as connection, after_commit.transaction(connection):
        found = await lock(connection, row["id"])
        assert found is not None
        evidence = Evidence("reconciler", "lookup", "absent")
        assert await write(connection, [decide.verdict(found.row, evidence, spine.catalogue.require(operation))])
    assert await redrive_at(spine, intent) is not None
    return intent


async def redrive_at(spine: Spine, intent: UUID) -> datetime | None:
    row = await spine.row(intent) or {}
    assert row["status"] == "held"
    return row["redrive_at"]


async def is_redriven(spine: Spine, operation: str) -> None:
    await spine.reconcile(after=120)
    await spine.work()
    assert isinstance(spine.accept(operation=operation), Replay)
    assert spine.effects() == 1


@pytest.mark.parametrize("word", [False, True])
async def test_a_row_that_keeps_its_place_under_a_doubt_keeps_its_redrive(spine: Spine, word: bool) -> None:
    intent = await to_be_redriven(spine, "pay.keyed")
    before = await redrive_at(spine, intent)
    await notices(spine, system_identifier=1)
    assert (await spine.row(intent))["doubted_since"] is not None
    assert await redrive_at(spine, intent) == before
    if word:
        await lossless(spine)
        assert await redrive_at(spine, intent) == before
    await is_redriven(spine, "pay.keyed")


async def test_a_row_that_became_unknown_has_its_redrive_again_where_nothing_was_lost(spine: Spine) -> None:
    intent = await to_be_redriven(spine, "pay.keyless")
    await notices(spine, system_identifier=1)
    assert await spine.status(intent) == "unknown"
    await lossless(spine)
    assert await redrive_at(spine, intent) is not None
    await is_redriven(spine, "pay.keyless")


async def test_one_that_is_too_late_to_be_redriven_is_told_instead(spine: Spine) -> None:
    """Nobody was told before, because it was to be redriven."""
    intent = await to_be_redriven(spine, "pay.keyless")
    told = len(await spine.all("SELECT FROM idem.events"))
    await notices(spine, system_identifier=1)
    await spine.all("UPDATE idem.outbox SET start_before = now() - interval '1 s' RETURNING id")
    await lossless(spine)
    assert await redrive_at(spine, intent) is None
    assert len(await spine.all("SELECT FROM idem.events")) == told + 1


async def test_a_redrive_that_was_not_made_in_time_ends_once(spine: Spine) -> None:
    intent = await to_be_redriven(spine, "pay.keyless")
    await spine.advance(30 * 86400)
    sweeper = Sweeper(spine.database, spine.catalogue)
    for _ in range(2):
        await sweeper.run_once()
    assert await redrive_at(spine, intent) is None
    assert len(await spine.all("SELECT FROM idem.evidence WHERE kind = 'too_old'")) == 1
