"""The origin of an answer: if the contract names a header of the provider's answers, each must have it."""

import time
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import uuid4

import pytest

from idem.outbox.calls.lookup_pages import ListFailed
from idem.outbox.domain.outcomes import Ambiguous, CouldNotAsk
from idem.testing.providers.calls import Calls, around, shown
from idem.testing.providers.errors import NotSupported, applies, must
from idem.testing.providers.world import Fault

ITS_OWN: Final = (
    Fault.DECLINE, Fault.REFUSED_REQUEST, Fault.PENDING, Fault.REQUIRES_ACTION, Fault.TOO_MANY_REQUESTS,
    Fault.UNAVAILABLE, Fault.IN_FLIGHT, Fault.ERROR_AFTER_ACTING, Fault.ERROR_CACHED,
)  # fmt: skip
"""Faults that the provider itself answers."""


class OriginRules:
    """Rules about `answers_carry`; contracts without it skip them."""

    def test_every_answer_to_a_call_carries_the_header(self, calls: Calls) -> None:
        """Success, a repeated send, wrong credentials, and each answer that the world can show: idem would not accept
        an answer without the header as the provider's."""
        _must_carry(calls)
        first = calls.send()
        calls.send(again=first)
        for fault in ITS_OWN:
            with suppress(NotSupported):
                calls.send(fault)
        with suppress(NotSupported):
            calls.send(account=calls.world.stranger())
        calls.cancel(first)
        _carried(calls)

    def test_every_answer_to_a_question_carries_the_header(self, calls: Calls) -> None:
        """Each look-up, about a call that was made and about one that was not; and the list."""
        _must_carry(calls)
        sent = calls.send()
        nothing = replace(sent, key=str(uuid4()))
        for asked in (calls.question(sent, sent.reference), calls.question(nothing)):
            for way in calls.provider.questions(asked):
                calls.lookup(asked, way)
        if calls.contract.listed:
            with suppress(ListFailed):
                calls.listed(*around([time.time(), sent.at]))
        applies(len(calls.heard) > len(sent.answers), "this contract asks nothing")
        _carried(calls)

    @pytest.mark.parametrize("fault", [Fault.PROXY_PAGE, Fault.GATEWAY_PAGE])
    def test_an_answer_without_the_header_proves_nothing(self, calls: Calls, fault: Fault) -> None:
        """The answer of a proxy to a call and to a question, whatever its status."""
        _must_carry(calls)
        sent = calls.send(fault)
        must(isinstance(sent.outcome, Ambiguous), "answers_carry", f"{fault} is read as {sent.word}")
        for way in calls.ways(sent):
            calls.world.next_lookup("proxy_page")
            lookup, _ = calls.lookup(calls.question(sent), way)
            must(isinstance(lookup, CouldNotAsk), "answers_carry", f"a proxy's page is read as {shown(lookup)}")


def _must_carry(calls: Calls) -> None:
    applies(calls.contract.answers_carry is not None, "answers_carry names no header")


def _carried(calls: Calls) -> None:
    lacking = sorted({each.status for each in calls.heard if each.lacks is not None})
    statuses = ", ".join(map(str, lacking))
    must(not lacking, "answers_carry", f"its own answers with HTTP {statuses} lack the header, and would prove nothing")
