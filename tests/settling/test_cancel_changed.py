"""A cancel by key proves nothing where its request, or the contract's limit of late arrivals, has changed since."""

import pytest
from fix_spine import KEYED, Spine
from settling.shop import CANCEL, asked, cancelling, cancels, lost, sends, stands

OTHERWISE = {
    "path": CANCEL.model_copy(update={"path": "/v2/payments/cancel"}),
    "body": CANCEL.model_copy(update={"body": {"reference": "{idem.key}"}}),
    "method": CANCEL.model_copy(update={"method": "PUT"}),
}


@pytest.mark.parametrize("changed", OTHERWISE)
async def test_a_cancel_that_goes_elsewhere_now_is_not_made(spine: Spine, changed: str) -> None:
    """The other address may know nothing of the call, and say truthfully that nothing stands."""
    cancelling(spine)
    right = spine.catalogue
    intent = await lost(spine)
    spine.change("keyed", cancels=OTHERWISE[changed])
    for _ in KEYED.schedule:
        await spine.reconcile(after=90000, hasten=True)
    row = await spine.row(intent)
    assert (row["status"], row["key_burned"], len(sends(spine))) == ("unknown", False, 1)
    assert cancels(spine) == asked(spine, "/v2/payments/cancel") == asked(spine, "/payments/cancel", "PUT") == 0
    await spine.reconcile(after=90000)
    await stands(spine, intent, "the request of its cancel")
    spine.catalogue = right
    await spine.reconcile(after=90000, hasten=True)
    assert cancels(spine) == 1


async def test_how_a_cancel_is_read_and_a_first_cancel_may_be_said_later(spine: Spine) -> None:
    cancelling(spine, cancel=None)
    intent = await lost(spine)
    cancelling(spine)
    spine.change("keyed", cancels=CANCEL.model_copy(update={"done": [200, "201-299"]}))
    await spine.reconcile(after=KEYED.flight_limit + KEYED.pause_allowance + 10, hasten=True)
    assert cancels(spine) == 1
    assert (await spine.row(intent))["key_burned"]


@pytest.mark.parametrize("swept", [False, True], ids=["reported", "swept"])
async def test_limits_that_were_corrected_since_hold_up_a_cancel(spine: Spine, swept: bool) -> None:
    """If the cancel does not block it, the stalled request would arrive after the cancel, and the next one too."""
    contract = cancelling(spine)
    intent = await lost(spine)
    if swept:
        # As a sweep leaves it: its holder may have been frozen before its first byte.
        await spine.all("UPDATE idem.outbox SET sweeps = 1 RETURNING id")
    longer = {"pause_allowance": contract.pause_allowance + 4000} if swept else {"flight_limit": 4000.0}
    cancelling(spine, **longer)
    for seconds in (contract.flight_limit + contract.pause_allowance + 10, 1000, 1000):
        await spine.reconcile(after=seconds, hasten=True)
        assert (cancels(spine), (await spine.row(intent))["status"]) == (0, "unknown")
    await spine.reconcile(after=3000, hasten=True)
    assert cancels(spine) == 1
