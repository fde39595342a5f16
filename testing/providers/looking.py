"""Look-ups: they find the requested object and never another one."""

from __future__ import annotations

import time
from uuid import uuid4

from idem.outbox.domain.outcomes import Absent, Ambiguous, Pending, Seen, Succeeded
from idem.outbox.providers.send import QUESTION
from idem.testing.providers.calls import Calls, SentCall, settles, shown
from idem.testing.providers.errors import applies, must, world_must
from idem.testing.providers.world import Fault, World


class Looking:
    """Rules about `questions` and `read_look`."""

    def test_a_foreign_key_is_never_found(self, world: World) -> None:
        """With other objects there: a provider that ignores the query shows somebody else's."""
        calls = Calls(world)
        calls.made()
        calls.made()
        calls.past_the_horizon()
        stranger = _never_sent(calls)
        for way in calls.ways(stranger):
            look, _ = calls.look(calls.question(stranger), way)
            told = f"{way.path} found {shown(look)} for a key that was never sent: another call's object"
            must(not settles(look), "lookup", told)

    def test_a_key_that_was_never_sent_is_absent(self, world: World) -> None:
        """Else no call that never arrived could ever be settled by asking."""
        calls = Calls(world)
        calls.made()
        calls.past_the_horizon()
        stranger = _never_sent(calls)
        for way in calls.ways(stranger):
            look, _ = calls.look(calls.question(stranger), way)
            told = f"{way.path} says {shown(look)} for a key that was never sent"
            must(isinstance(look, Absent), "lookup", told)

    def test_by_id_shows_the_same_object(self, world: World) -> None:
        """Found by the reference of the answer: the same reference, and no less than the answer said."""
        calls = Calls(world)
        applies(calls.contract.lookup.by_id, "lookup.by_id is not there")
        sent = calls.made()
        reference = sent.reference
        must(reference is not None, "object.reference", "the answer has none, so by_id can never be asked")
        ways = calls.by_id(sent, str(reference))
        must(bool(ways), "lookup.by_id", f"the reference {reference} leads to no question")
        for way in ways:
            look, _ = calls.look(calls.question(sent, reference), way)
            told = f"{way.path} shows {shown(look)}, where the answer said {sent.word} {reference}"
            must(isinstance(look, Succeeded | Pending), "lookup.by_id", told)
            must(getattr(look, "reference", None) == reference, "lookup.by_id", told)

    def test_by_id_shows_no_other_object(self, world: World) -> None:
        """A reference that does not exist proves nothing."""
        calls = Calls(world)
        applies(calls.contract.lookup.by_id, "lookup.by_id is not there")
        sent = calls.made()
        must(sent.reference is not None, "object.reference", "the answer has none, so by_id can never be asked")
        unknown = _other(str(sent.reference))
        for way in calls.by_id(sent, unknown):
            look, _ = calls.look(calls.question(sent, unknown), way)
            told = f"{way.path} shows {shown(look)} for a reference that does not exist"
            must(not settles(look), "lookup.by_id", told)

    def test_a_look_up_never_makes_a_success_of_a_refusal(self, world: World) -> None:
        """It may show the refused object, or nothing."""
        calls = Calls(world)
        sent = calls.send(Fault.DECLINE)
        world_must(sent.made == 0, "the fault decline had an effect")
        calls.past_the_horizon()
        for way in calls.ways(sent):
            look, _ = calls.look(calls.question(sent), way)
            told = f"{way.path} says {shown(look)} about a call that was declined"
            must(not isinstance(look, Succeeded | Pending), "outcome", told)

    def test_a_look_up_shows_what_is_pending(self, world: World) -> None:
        """What the provider is working on is there: with the reference of the answer, and absent in no case."""
        calls = Calls(world)
        sent = calls.send(Fault.PENDING)
        calls.past_the_horizon()
        for way in calls.ways(sent):
            look, _ = calls.look(calls.question(sent), way)
            told = f"{way.path} says {shown(look)} about a call that the provider had accepted"
            must(settles(look), "outcome", told)
            same = sent.reference is None or getattr(look, "reference", None) == sent.reference
            must(same, "object.reference", f"{told}, which was answered with {sent.reference}")

    def test_lookups_have_no_effect(self, world: World) -> None:
        """A question is only a question."""
        calls = Calls(world)
        sent = calls.made()
        before = world.effects()
        for way in calls.provider.questions(calls.question(sent, sent.reference)):
            must(way.method in ("GET", "HEAD", QUESTION), "lookup", f"the question {way.method} {way.path} is no GET")
            calls.look(calls.question(sent, sent.reference), way)
        must(world.effects() == before, "lookup", "asking had an effect")


def _never_sent(calls: Calls) -> SentCall:
    key = str(uuid4())
    return SentCall(key, calls.freeze(key), Ambiguous(), Seen(), 0, time.time() + calls.passed)


def _other(reference: str) -> str:
    """A reference of the same form that names nothing."""
    if reference.isdecimal():
        return str(int(reference) + 10**9)
    end = reference[-6:]
    turned = "".join(chr((ord(each) - 97 + 13) % 26 + 97) if each.islower() else each for each in end)
    turned = turned if turned != end else "".join("0" if each != "0" else "1" for each in end)
    return reference[: len(reference) - len(end)] + turned
