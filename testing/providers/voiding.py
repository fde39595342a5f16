"""Cancel by key: it stops what was sent, and with tombstones also what arrives later."""

from __future__ import annotations

import time
from uuid import uuid4

from idem.outbox.domain.outcomes import Absent, Ambiguous, Pending, Refused, Seen, Succeeded
from idem.testing.providers.calls import Calls, SentCall, settles, shown
from idem.testing.providers.errors import NotSupported, applies, must
from idem.testing.providers.world import Fault, World


class Voiding:
    """Rules about `cancel` and `read_cancel`."""

    def test_a_cancel_by_key_really_voids(self, world: World) -> None:
        """An answer was lost, the cancel says that nothing stands: then nothing does."""
        calls = _cancelling(world)
        before = world.effects()
        sent = calls.lost(Fault.ACT_THEN_DROP)
        look, seen = calls.cancel(sent)
        left = world.effects() - before
        if isinstance(look, Succeeded | Pending):
            must(left == 1, "cancel_by_key", f"it says {shown(look)}, but the effect is gone")
            raise NotSupported("this provider does not void what it has carried out: only what comes later is stopped")
        must(isinstance(look, Absent | Refused), "cancel_by_key", f"it came to {shown(look)} ({seen.note})")
        told = f"it says {shown(look)}, but {left} effects of the call stand"
        must(left == 0, "cancel_by_key", told)

    def test_a_cancel_of_nothing_is_done_too(self, world: World) -> None:
        """Whether the request had arrived or not, nothing stands."""
        calls = _cancelling(world)
        before = world.effects()
        look, seen = calls.cancel(_never_sent(calls))
        told = f"the cancel of a key that never arrived came to {shown(look)} ({seen.note})"
        must(isinstance(look, Absent), "cancel_by_key", told)
        must(world.effects() == before, "cancel_by_key", "it changed the effects of other calls")

    def test_a_cancel_leaves_other_calls_alone(self, world: World) -> None:
        """Another key's effect stands after it."""
        calls = _cancelling(world)
        calls.made()
        before = world.effects()
        calls.cancel(_never_sent(calls))
        must(world.effects() == before, "cancel_by_key", "the cancel of one key voided another one's effect")

    def test_a_tombstone_stops_what_arrives_after_the_cancel(self, world: World) -> None:
        """Cancelled first, sent then: no effect."""
        calls = _with_tombstones(world)
        key = str(uuid4())
        stranger = SentCall(key, calls.freeze(key), Ambiguous(), Seen(), 0, time.time())
        look, seen = calls.cancel(stranger)
        must(isinstance(look, Absent), "cancel_by_key", f"it came to {shown(look)} ({seen.note})")
        late = calls.send(key=key)
        told = f"a request that arrived after the cancel was carried out, and answered {late.word}"
        must(late.made == 0, "cancel_by_key.tombstones", told)
        must(not isinstance(late.outcome, Succeeded | Pending), "cancel_by_key.tombstones", told)

    def test_a_tombstone_stops_what_is_being_worked_on(self, world: World) -> None:
        """Sent, cancelled while the provider is at it, and then acted upon: no effect."""
        calls = _with_tombstones(world)
        before = world.effects()
        sent = calls.send(Fault.ACT_LATE)
        look, seen = calls.cancel(sent)
        if settles(look):
            raise NotSupported(f"the request had been carried out before the cancel came ({shown(look)})")
        must(isinstance(look, Absent), "cancel_by_key", f"it came to {shown(look)} ({seen.note})")
        world.settle_late()
        told = "what was being worked on when the cancel came was carried out after it"
        must(world.effects() == before, "cancel_by_key.tombstones", told)


def _cancelling(world: World) -> Calls:
    calls = Calls(world)
    applies(calls.contract.cancel is not None, "cancel_by_key is not there")
    return calls


def _with_tombstones(world: World) -> Calls:
    calls = _cancelling(world)
    rule = calls.contract.cancel
    applies(rule is not None and rule.tombstones, "cancel_by_key.tombstones is false: a late request is not stopped")
    return calls


def _never_sent(calls: Calls) -> SentCall:
    key = str(uuid4())
    return SentCall(key, calls.freeze(key), Ambiguous(), Seen(), 0, time.time() + calls.passed)
