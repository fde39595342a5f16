"""After lost commits two claims of a row may have one number: the token says whose late report proves the whole."""

from uuid import UUID, uuid4

import pytest
from fix_spine import Spine

from idem.outbox.domain.lane_names import lane_names
from idem.outbox.domain.outcomes import Seen
from idem.outbox.settle import results
from idem.outbox.settle.results import Report
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.claim import Claim
from idem.outcomes import NotExecuted
from idem.sweeper.daemon import Sweeper


async def claim(spine: Spine) -> Claim:
    name, _ = lane_names(spine.catalogue)["keyed", "keyed"]
    async with spine.database.connection() as connection:
        (row,) = await claims.claim(
            connection, name, token=uuid4(), holder="worker-x", lease=30, limit=1, now=clock.boottime()
        )
    return row


async def report_not_executed(spine: Spine, claimed: Claim) -> dict[UUID, results.ResultFate]:
    terms = spine.catalogue.terms("pay.keyed", "keyed")
    assert terms is not None
    async with spine.database.connection() as connection:
        return await results.settle(connection, [Report(claimed.row, NotExecuted("transport"), Seen(), terms)])


async def swept(spine: Spine) -> None:
    await spine.advance(60)
    await Sweeper(spine.database, spine.catalogue).run_once()


@pytest.mark.parametrize("lost", [False, True], ids=["its own claim was swept", "the claim of another was swept"])
async def test_a_late_not_executed_speaks_for_its_own_claim_alone(spine: Spine, lost: bool) -> None:
    """The other claim has the same number, and its call may have been made."""
    intent = spine.accepted()
    first = await claim(spine)
    if lost:
        # The database goes back to the moment before the claim, and another worker claims the row.
        async with spine.database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(
                "UPDATE idem.outbox SET status = 'pending', attempt = 0, claim_token = NULL, claimed_by = NULL,"
                " claimed_at = NULL, claimed_until = NULL, first_sent_at = NULL, started_at = NULL"
            )
        second = await claim(spine)
        assert second.row.attempt == first.row.attempt and second.row.token != first.row.token
    await swept(spine)
    await report_not_executed(spine, first)
    row = await spine.row(intent)
    assert row is not None and row["status"] == ("unknown" if lost else "held"), row
