"""Look-ups: they find the requested object and never another one."""

from idem.outbox.domain.outcomes import Absent, Pending, Succeeded
from idem.outbox.providers.send import QUESTION
from idem.testing.providers.calls import Calls, settles, shown
from idem.testing.providers.errors import applies, must, world_must
from idem.testing.providers.world import Fault


class LookupRules:
    """Rules about `questions` and `read_lookup`."""

    def test_a_foreign_key_is_never_found(self, calls: Calls) -> None:
        """With other objects at the provider, because a provider that ignores the query shows another call's object."""
        calls.made()
        calls.made()
        calls.past_the_horizon()
        stranger = calls.never_sent()
        for way, lookup in calls.lookups(stranger):
            message = f"{way.path} found {shown(lookup)} for a key that was never sent: another call's object"
            must(not settles(lookup), "lookup", message)

    def test_a_key_that_was_never_sent_is_absent(self, calls: Calls) -> None:
        """Otherwise no look-up could ever settle a call that did not arrive."""
        calls.made()
        calls.past_the_horizon()
        stranger = calls.never_sent()
        for way, lookup in calls.lookups(stranger):
            must(isinstance(lookup, Absent), "lookup", f"{way.path} says {shown(lookup)} for a key that was never sent")

    def test_by_id_shows_the_same_object(self, calls: Calls) -> None:
        """A look-up by the answer's reference shows the same reference, and proves at least as much as the answer."""
        applies(calls.contract.lookup.by_id, "lookup.by_id is not set")
        sent = calls.made()
        reference = sent.reference
        must(reference is not None, "object.reference", "the answer has none, so by_id can never be asked")
        ways = calls.by_id(sent, str(reference))
        must(bool(ways), "lookup.by_id", f"the reference {reference} leads to no question")
        for way in ways:
            lookup, _ = calls.lookup(calls.question(sent, reference), way)
            message = f"{way.path} shows {shown(lookup)}, but the answer said {sent.word} {reference}"
            must(isinstance(lookup, Succeeded | Pending), "lookup.by_id", message)
            must(getattr(lookup, "reference", None) == reference, "lookup.by_id", message)

    def test_by_id_shows_no_other_object(self, calls: Calls) -> None:
        """A reference that does not exist proves nothing."""
        applies(calls.contract.lookup.by_id, "lookup.by_id is not set")
        sent = calls.made()
        must(sent.reference is not None, "object.reference", "the answer has none, so by_id can never be asked")
        unknown = _other(str(sent.reference))
        for way in calls.by_id(sent, unknown):
            lookup, _ = calls.lookup(calls.question(sent, unknown), way)
            message = f"{way.path} shows {shown(lookup)} for a reference that does not exist"
            must(not settles(lookup), "lookup.by_id", message)

    def test_a_lookup_never_makes_a_success_of_a_refusal(self, calls: Calls) -> None:
        """The look-up may show the refused object, or nothing."""
        sent = calls.send(Fault.DECLINE)
        world_must(sent.made == 0, "the fault decline had an effect")
        calls.past_the_horizon()
        for way, lookup in calls.lookups(sent):
            message = f"{way.path} says {shown(lookup)} about a call that was declined"
            must(not isinstance(lookup, Succeeded | Pending), "outcome", message)

    def test_a_lookup_shows_what_is_pending(self, calls: Calls) -> None:
        """The look-up shows a call that the provider is working on, with the answer's reference; it is never absent."""
        sent = calls.send(Fault.PENDING)
        calls.past_the_horizon()
        for way, lookup in calls.lookups(sent):
            message = f"{way.path} says {shown(lookup)} about a call that the provider had accepted"
            must(settles(lookup), "outcome", message)
            same = sent.reference is None or getattr(lookup, "reference", None) == sent.reference
            must(same, "object.reference", f"{message}, which was answered with {sent.reference}")

    def test_lookups_have_no_effect(self, calls: Calls) -> None:
        """Asking changes nothing at the provider."""
        sent = calls.made()
        before = calls.world.effects()
        for way in calls.provider.questions(calls.question(sent, sent.reference)):
            must(way.method in ("GET", "HEAD", QUESTION), "lookup", f"{way.method} {way.path} is not a GET")
            calls.lookup(calls.question(sent, sent.reference), way)
        must(calls.world.effects() == before, "lookup", "asking had an effect")


def _other(reference: str) -> str:
    """A reference of the same form that names no object."""
    if reference.isdecimal():
        return str(int(reference) + 10**9)
    end = reference[-6:]
    turned = "".join(chr((ord(each) - 97 + 13) % 26 + 97) if each.islower() else each for each in end)
    turned = turned if turned != end else "".join("0" if each != "0" else "1" for each in end)
    return reference[: len(reference) - len(end)] + turned
