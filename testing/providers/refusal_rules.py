"""Calls that the provider does not execute: our mistakes, throttling and its refusals, each read correctly."""

from typing import Any, Final

import pytest

from idem.outbox.domain.outcomes import (
    Ambiguous,
    CouldNotAsk,
    NotExecuted,
    Outcome,
    Pending,
    Refused,
    Succeeded,
    name,
)
from idem.testing.providers.calls import Calls, shown
from idem.testing.providers.errors import applies, must, world_must
from idem.testing.providers.world import Fault

SHOWN_BY: Final[dict[str, tuple[Fault, tuple[type[Any], ...]]]] = {
    "refused": (Fault.DECLINE, (Refused,)),
    "pending": (Fault.PENDING, (Pending, Succeeded)),
    "answer": (Fault.REQUIRES_ACTION, (Succeeded, Pending)),
    "not_executed:request": (Fault.REFUSED_REQUEST, (NotExecuted, Refused)),
    "ambiguous": (Fault.ERROR_AFTER_ACTING, (Ambiguous,)),
    "ambiguous:cached": (Fault.ERROR_CACHED, (Ambiguous,)),
    "unavailable": (Fault.UNAVAILABLE, (Ambiguous, NotExecuted)),
    "in flight": (Fault.IN_FLIGHT, (Ambiguous, NotExecuted)),
}


class RefusalRules:
    """Rules about refusals, and which outcomes this world can show."""

    def test_wrong_credentials_are_a_mistake_of_the_configuration(self, calls: Calls) -> None:
        """Never a refusal: one wrong setting of ours would complete every key with an error."""
        sent = calls.send(account=calls.world.stranger())
        world_must(sent.made == 0, "a call with wrong credentials had an effect")
        message = f"a call with wrong credentials is read as {sent.word}, not as not_executed:config"
        must(sent.outcome == NotExecuted("config"), "outcome", message)

    def test_wrong_credentials_find_nothing_and_prove_nothing(self, calls: Calls) -> None:
        """A question with wrong credentials could not be asked; reading "not found" would be an absence."""
        sent, stranger = calls.made(), calls.world.stranger()
        calls.past_the_horizon()
        for way, lookup in calls.lookups(sent, stranger):
            message = f"{way.path}, asked with wrong credentials, says {shown(lookup)}"
            must(isinstance(lookup, CouldNotAsk), "lookup", message)

    def test_throttling_is_what_the_contract_says(self, calls: Calls) -> None:
        """With throttles_before_execution a throttled call has no effect. Without it a 429 is ambiguous."""
        sent = calls.send(Fault.TOO_MANY_REQUESTS)
        must(not sent.proves, "outcome", f"a 429 is read as {sent.word}")
        if calls.contract.throttles_before_execution:
            message = "it is true, but a call that was answered 429 had an effect"
            must(sent.made == 0, "throttles_before_execution", message)
        message = f"a 429 of a call that had an effect is read as {sent.word}"
        must(sent.made == 0 or isinstance(sent.outcome, Ambiguous), "outcome", message)

    def test_a_decline_is_a_refusal_without_an_effect(self, calls: Calls) -> None:
        """The provider's decision is an answer, and final."""
        sent = calls.send(Fault.DECLINE)
        world_must(sent.made == 0, "the fault decline had an effect")
        must(isinstance(sent.outcome, Refused), "outcome", f"a declined call is read as {sent.word}")

    @pytest.mark.parametrize("shown_as", SHOWN_BY)
    def test_an_outcome_that_the_world_can_show(self, calls: Calls, shown_as: str) -> None:
        """One test for each outcome. A skipped one could not be shown here, so nothing checks it."""
        fault, kinds = SHOWN_BY[shown_as]
        sent = calls.send(fault)
        must(isinstance(sent.outcome, kinds), "outcome", f"the answer to {fault} is read as {sent.word}")
        _is_no_lie(sent.outcome, sent.made, fault)

    def test_further_statuses_are_sorted(self, calls: Calls) -> None:
        """The world's further statuses are read as final, answer, pending or refused, never as ambiguous."""
        applies(bool(calls.world.further), "World.further names no further statuses")
        unsorted = []
        for fault in calls.world.further:
            sent = calls.send(fault)
            if not sent.proves:
                unsorted.append(f"{fault}: {sent.word}")
        must(not unsorted, "object.statuses", f"no rule reads the answers to {'; '.join(unsorted)}")


def _is_no_lie(outcome: Outcome, made: int, fault: Fault) -> None:
    if made:
        message = f"{fault} had an effect, and is read as {name(outcome)}"
        must(not isinstance(outcome, NotExecuted | Refused), "outcome", message)
    else:
        message = f"{fault} had no effect, and is read as {name(outcome)}"
        must(not isinstance(outcome, Succeeded | Pending), "outcome", message)
