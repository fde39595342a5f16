"""What an answer means that a provider gives under a key that it knows already."""

from fix_spine import Spine

from idem.decisions import Replay


async def test_already_being_made_under_our_key_is_no_failure(spine: Spine) -> None:
    """IB-086: the provider says that our key is in use. The reconciler looks the payment up."""
    await spine.sent(faults=["act_then_drop"])
    await spine.advance(10)
    spine.bank.script(None, ["409_in_flight"])
    await spine.reconcile()
    assert isinstance(spine.accept(), Replay)
    assert [send.fault for send in spine.bank.log.sends()] == ["act_then_drop", "409_in_flight"]
    assert spine.effects() == 1
