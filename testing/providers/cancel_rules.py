"""Cancel by key: it stops a sent call, and where it blocks late requests also a call that arrives later."""

from idem.outbox.domain.outcomes import Absent, Pending, Refused, Succeeded
from idem.testing.providers.calls import Calls, settles, shown
from idem.testing.providers.errors import NotSupported, applies, must
from idem.testing.providers.world import Fault


class CancelRules:
    """Rules about `cancel` and `read_cancel`."""

    def test_a_cancel_by_key_really_voids(self, calls: Calls) -> None:
        """After a lost answer: if the cancel says that no effect exists, none does."""
        _cancelling(calls)
        before = calls.world.effects()
        sent = calls.lost(Fault.ACT_THEN_DROP)
        lookup, seen = calls.cancel(sent)
        left = calls.world.effects() - before
        if isinstance(lookup, Succeeded | Pending):
            must(left == 1, "cancel_by_key", f"the cancel says {shown(lookup)}, but the effect is gone")
            raise NotSupported("this provider does not void an executed call; it only stops later requests")
        must(
            isinstance(lookup, Absent | Refused),
            "cancel_by_key",
            f"the cancel is read as {shown(lookup)} ({seen.note})",
        )
        must(left == 0, "cancel_by_key", f"the cancel says {shown(lookup)}, but {left} effects of the call exist")

    def test_a_cancel_of_nothing_is_done_too(self, calls: Calls) -> None:
        """After the cancel no effect exists, whether the request had arrived or not."""
        _cancelling(calls)
        before = calls.world.effects()
        lookup, seen = calls.cancel(calls.never_sent())
        message = f"the cancel of a key that never arrived is read as {shown(lookup)} ({seen.note})"
        must(isinstance(lookup, Absent), "cancel_by_key", message)
        must(calls.world.effects() == before, "cancel_by_key", "it changed the effects of other calls")

    def test_a_cancel_leaves_other_calls_alone(self, calls: Calls) -> None:
        """The effect under another key still exists afterwards."""
        _cancelling(calls)
        calls.made()
        before = calls.world.effects()
        calls.cancel(calls.never_sent())
        must(calls.world.effects() == before, "cancel_by_key", "the cancel of one key voided another one's effect")

    def test_a_cancel_stops_what_arrives_after_the_cancel(self, calls: Calls) -> None:
        """Cancelled first, sent afterwards: no effect."""
        _that_blocks(calls)
        stranger = calls.never_sent()
        lookup, seen = calls.cancel(stranger)
        must(isinstance(lookup, Absent), "cancel_by_key", f"the cancel is read as {shown(lookup)} ({seen.note})")
        late = calls.send(key=stranger.key)
        message = f"a request that arrived after the cancel was executed, and answered {late.word}"
        must(late.made == 0, "cancel_by_key.blocks_late_requests", message)
        must(not isinstance(late.outcome, Succeeded | Pending), "cancel_by_key.blocks_late_requests", message)

    def test_a_cancel_stops_what_is_being_worked_on(self, calls: Calls) -> None:
        """Sent, and cancelled before the provider acts: no effect."""
        _that_blocks(calls)
        before = calls.world.effects()
        sent = calls.send(Fault.ACT_LATE)
        lookup, seen = calls.cancel(sent)
        if settles(lookup):
            raise NotSupported(f"the request was executed before the cancel arrived ({shown(lookup)})")
        must(isinstance(lookup, Absent), "cancel_by_key", f"the cancel is read as {shown(lookup)} ({seen.note})")
        calls.world.settle_late()
        message = "a request that was in progress at the cancel was executed after it"
        must(calls.world.effects() == before, "cancel_by_key.blocks_late_requests", message)


def _cancelling(calls: Calls) -> None:
    applies(calls.contract.cancel is not None, "cancel_by_key is not set")


def _that_blocks(calls: Calls) -> None:
    _cancelling(calls)
    rule = calls.contract.cancel
    applies(
        rule is not None and rule.blocks_late_requests,
        "cancel_by_key.blocks_late_requests is false: a late request is not stopped",
    )
