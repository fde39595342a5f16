"""Two sends under one key: the provider does what `key.replay` promises."""

import pytest

from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Pending, Refused, Succeeded
from idem.testing.providers.calls import Calls, SentCall
from idem.testing.providers.errors import NotSupported, applies, must, world_must
from idem.testing.providers.world import Fault

ANSWERS_AGAIN = ("stored", "current", "success_only")


class ReplayRules:
    """Rules about healthy sends, refusals and replays."""

    def test_a_healthy_call_has_one_effect_and_a_reference(self, calls: Calls) -> None:
        """A second call under another key has another effect, so the world counts effects."""
        first, second = calls.made(), calls.made()
        if calls.contract.lookup.by_id:
            must(first.reference is not None, "object.reference", "the answer has none, so by_id can never be asked")
        if first.reference is not None:
            message = f"two calls have the reference {first.reference}: it does not name one effect"
            must(first.reference != second.reference, "object.reference", message)

    def test_a_second_send_under_one_key_does_what_replay_says(self, calls: Calls) -> None:
        """stored, current, success_only: one effect and the same object. none: two effects."""
        first = calls.made()
        again = calls.send(again=first)
        replay = calls.contract.key.replay
        if replay == "none":
            _as_poor_as_said(again)
            return
        must(again.made == 0, "key.replay", f'it is "{replay}", but a second send had another effect')
        message = f'it is "{replay}", but the second send was answered {again.word}'
        must(isinstance(again.outcome, Succeeded | Pending), "key.replay", message)
        must(again.reference == first.reference, "key.replay", "the second send was answered with another reference")
        if replay == "stored":
            message = f"it is stored, but the second answer says {again.word} and the first {first.word}"
            must(again.outcome == first.outcome, "key.replay", message)

    def test_a_second_send_after_a_refusal_does_what_replay_says(self, calls: Calls) -> None:
        """stored and current: the same refusal. success_only: the provider tries again."""
        replay = calls.contract.key.replay
        applies(replay != "none", 'key.replay is "none": nothing is promised')
        first = calls.send(Fault.DECLINE)
        world_must(first.made == 0, "the fault decline had an effect")
        again = calls.send(again=first)
        if replay == "success_only":
            if again.made == 0:
                raise NotSupported("this provider remembers refusals too: key.replay could say more than success_only")
            return
        must(again.made == 0, "key.replay", f'it is "{replay}", but a refused request was executed when sent again')
        message = f'it is "{replay}", but the refusal was answered {again.word} when sent again'
        must(isinstance(again.outcome, Refused), "key.replay", message)

    def test_another_request_under_the_key_has_no_effect(self, calls: Calls) -> None:
        """A key identifies one request; a provider that executes the second request does not honour keys."""
        applies(calls.contract.key.replay in ANSWERS_AGAIN, 'key.replay is "none": nothing is promised')
        if calls.world.another is None:
            raise NotSupported("World.another is not set: a second request that differs from the first")
        first = calls.made()
        other = calls.send(key=first.key, request=calls.world.another)
        must(other.frozen.body != first.frozen.body or other.frozen.path != first.frozen.path, "World.another", "it is "
             "the same as World.request")  # fmt: skip
        must(other.made == 0, "key.replay", "another request under a used key was executed")

    def test_the_key_is_remembered_to_the_end_of_the_window(self, calls: Calls) -> None:
        """A replay starts until retention - margin; it may arrive until the margin has passed."""
        applies(calls.contract.replay_window > 0, "key: the replay window is empty, so nothing is replayed")
        first = calls.made()
        calls.wait(calls.contract.key.retention - min(60.0, calls.contract.key.margin / 2))
        again = calls.send(again=first)
        must(again.made == 0, "key.retention", "just before its end a send under the key had another effect")

    @pytest.mark.parametrize("replay", ["again", "not again"])
    def test_a_send_while_the_first_is_worked_on_has_no_second_effect(self, calls: Calls, replay: str) -> None:
        """The first send acts late; with or without a replay meanwhile there is one effect."""
        applies(replay == "not again" or calls.contract.replays, "key: nothing is ever sent again under a key")
        before = calls.world.effects()
        first = calls.send(Fault.ACT_LATE)
        must(isinstance(first.outcome, Ambiguous), "outcome", f"a call without an answer is read as {first.word}")
        if replay == "again":
            second = calls.send(again=first)
            must(not isinstance(second.outcome, Refused | NotExecuted) or second.made == 0, "outcome", second.word)
        calls.world.settle_late()
        made = calls.world.effects() - before
        world_must(made > 0, f"the fault act_late had no effect {calls.world.late} s after its call")
        must(made == 1, "key.replay", f"a send while the first was in progress led to {made} effects")


def _as_poor_as_said(again: SentCall) -> None:
    if again.made == 0:
        raise NotSupported(
            'key.replay is "none", but a second send had no other effect: the provider may honour keys, and '
            "the contract could say so"
        )
