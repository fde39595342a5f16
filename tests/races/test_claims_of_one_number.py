"""After lost commits two claims of a row may have one number: the token says whose late report proves the whole."""

import pytest
from fix_spine import Spine
from fix_steps import claim_one, report, settle

from idem.outcomes import NotExecuted


@pytest.mark.parametrize("lost", [False, True], ids=["its own claim was swept", "the claim of another was swept"])
async def test_a_late_not_executed_speaks_for_its_own_claim_alone(spine: Spine, lost: bool) -> None:
    """The other claim has the same number, and its call may have been made."""
    intent = spine.accepted()
    first = await claim_one(spine)
    if lost:
        # The database goes back to the moment before the claim, and another worker claims the row.
        await spine.forced(
            "UPDATE idem.outbox SET status = 'pending', attempt = 0, claim_token = NULL, claimed_by = NULL,"
            " claimed_at = NULL, claimed_until = NULL, first_sent_at = NULL, started_at = NULL"
        )
        second = await claim_one(spine)
        assert second.row.attempt == first.row.attempt and second.row.token != first.row.token
    await spine.sweep(after=60)
    await settle(spine, report(spine, first, NotExecuted("transport"), status=None))
    row = await spine.row(intent)
    assert row is not None and row["status"] == ("unknown" if lost else "held"), row
