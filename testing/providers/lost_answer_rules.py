"""Lost answers: they are ambiguous, then every way that the contract promises settles them with the same object."""

import time
from typing import Final

import pytest

from idem.outbox.domain.outcomes import Absent, Ambiguous, NotExecuted
from idem.testing.providers.calls import Calls, settles, shown
from idem.testing.providers.errors import NotSupported, applies, must, world_must
from idem.testing.providers.world import Fault

LOST = (Fault.ACT_THEN_DROP, Fault.STALL, Fault.CUT_BODY, Fault.GATEWAY_PAGE, Fault.ERROR_AFTER_ACTING)
OVERRUN: Final = 5.0
"""Seconds that a slow machine may need beyond a deadline."""

NEVER_ACTED = (Fault.DROP_BEFORE_ACTING, Fault.TOO_MANY_REQUESTS, Fault.UNAVAILABLE, Fault.IN_FLIGHT)


class LostAnswerRules:
    """Rules about calls whose answer was lost."""

    @pytest.mark.parametrize("fault", LOST)
    def test_a_lost_answer_is_ambiguous(self, calls: Calls, fault: Fault) -> None:
        """The effect exists, and the answer proves nothing: neither success nor "not executed"."""
        sent = calls.lost(fault)
        must(isinstance(sent.outcome, Ambiguous), "outcome", f"after {fault} the call is read as {sent.word}")

    @pytest.mark.parametrize("fault", LOST)
    def test_a_lost_answer_is_settled_by_a_replay(self, calls: Calls, fault: Fault) -> None:
        """The same bytes sent again return the object, without a second effect."""
        applies(calls.contract.replays, f'key.replay is "{calls.contract.key.replay}": nothing is sent again')
        sent = calls.lost(fault)
        again = calls.send(again=sent)
        must(again.made == 0, "key.replay", f"the replay after {fault} had another effect")
        if isinstance(again.outcome, Ambiguous) and fault is Fault.ERROR_AFTER_ACTING:
            raise NotSupported("this provider repeats its 500: replays never settle it, look-ups and events do")
        must(again.proves, "key.replay", f"the replay after {fault} proves nothing: {again.word}")
        third = calls.send(again=sent)
        message = f"two replays give the references {again.reference} and {third.reference}"
        must(third.reference == again.reference, "key.replay", message)

    @pytest.mark.parametrize("fault", LOST)
    def test_a_lost_answer_is_settled_by_each_lookup(self, calls: Calls, fault: Fault) -> None:
        """After the horizon every way to ask shows the object, and all show the same one."""
        sent = calls.lost(fault)
        calls.past_the_horizon()
        found: dict[str, str | None] = {}
        for way, lookup in calls.lookups(sent):
            message = f"after {fault} and the horizon, {way.path} says {shown(lookup)} about an existing effect"
            must(settles(lookup), "lookup.horizon" if isinstance(lookup, Absent) else "lookup", message)
            found[way.path] = getattr(lookup, "reference", None)
        must(len(set(found.values())) == 1, "lookup", f"the ways to ask show different objects: {found}")
        if calls.contract.replays and fault is not Fault.ERROR_AFTER_ACTING:
            again = calls.send(again=sent)
            message = f"the look-up shows {set(found.values())}, a replay {again.reference}"
            must({again.reference} == set(found.values()), "lookup", message)

    def test_a_stalled_call_ends_at_its_deadline(self, calls: Calls) -> None:
        """Also if a function makes the call: work that continues after the deadline might send after another daemon has
        the row.
        """
        began = time.monotonic()
        calls.lost(Fault.STALL)
        took, deadline = time.monotonic() - began, min(calls.world.patience, calls.contract.deadline)
        message = f"a call with a deadline of {deadline:g} s was over after {took:.0f} s"
        must(took < deadline + OVERRUN, "deadline", message)

    @pytest.mark.parametrize("fault", NEVER_ACTED)
    def test_what_never_acted_is_no_proof_and_not_found(self, calls: Calls, fault: Fault) -> None:
        """The call proves nothing, and after the horizon every way to ask shows that there is no object."""
        sent = calls.send(fault)
        world_must(sent.made == 0, f"the fault {fault} must not act, but it had {sent.made} effects")
        must(not sent.proves, "outcome", f"after {fault}, which did nothing, the call is read as {sent.word}")
        if isinstance(sent.outcome, NotExecuted):
            message = f"the connection broke after the request, and the call is read as {sent.word}"
            must(fault is not Fault.DROP_BEFORE_ACTING, "outcome", message)
        calls.past_the_horizon()
        for way, lookup in calls.lookups(sent):
            message = f"after {fault} and the horizon, {way.path} says {shown(lookup)} about nothing"
            must(isinstance(lookup, Absent), "lookup", message)

    def test_a_cached_failure_is_not_replayed_for_ever(self, calls: Calls) -> None:
        """The key keeps a 500: the replay gets it again and has no effect; the contract may read it as cached."""
        applies(calls.contract.replays, "key: nothing is ever sent again under a key")
        sent = calls.send(Fault.ERROR_CACHED)
        world_must(sent.made == 0, "the fault 500_cached had an effect")
        must(isinstance(sent.outcome, Ambiguous), "outcome", f"a 500 is read as {sent.word}")
        again = calls.send(again=sent)
        if again.made:
            raise NotSupported("this provider keeps no 500 under the key: it executed the replay")
        must(isinstance(again.outcome, Ambiguous), "outcome", f"a 500 that came again is read as {again.word}")

    def test_what_acts_late_is_found_in_the_end(self, calls: Calls) -> None:
        """The send proves nothing, and the effect is found after `late` and the horizon."""
        late = calls.world.late
        must(late <= calls.contract.flight_limit, "flight_limit", f"a request may still be acted upon after {late} s")
        sent = calls.send(Fault.ACT_LATE)
        must(isinstance(sent.outcome, Ambiguous), "outcome", f"a call without an answer is read as {sent.word}")
        calls.world.settle_late()
        calls.past_the_horizon()
        for way, lookup in calls.lookups(sent):
            must(settles(lookup), "lookup", f"{way.path} says {shown(lookup)} about an effect that came late")

    def test_a_lost_answer_can_be_settled_at_all(self, calls: Calls) -> None:
        """By a replay, a look-up, a cancel or an event; otherwise the contract says who decides."""
        contract = calls.contract
        ways = contract.replays, contract.lookup.possible, contract.events_settle, contract.cancel is not None
        if not any(ways):
            raise NotSupported(f'nothing can show what happened: on_unsettleable is "{contract.on_unsettleable}"')
