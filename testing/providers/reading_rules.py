"""Reading answers: no answer raises an error, and neither a truncated answer nor a proxy's page proves anything."""

import time
from dataclasses import replace
from typing import Any, Final, get_args

import pytest

from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.domain.outcomes import Absent, Ambiguous, CouldNotAsk, NotExecuted, Outcome, name
from idem.outbox.domain.outcomes import LookupOutcome as AnyLookup
from idem.outbox.domain.provider import Question
from idem.testing.providers import answers
from idem.testing.providers.calls import Calls, SentCall, shown
from idem.testing.providers.errors import must, world_must
from idem.testing.providers.world import Fault

OF_THE_LINE: Final = frozenset({405, 411, 421, 426, 428, 431, 501, 505, 511})
"""Statuses with which a proxy says that it did not forward the request: `NotExecuted(config)`."""


class ReadingRules:
    """Rules about `classify`, `read_lookup`, `next_page`, `read_cancel`, `read_listing` and `read_events`."""

    def test_reading_never_raises(self, calls: Calls) -> None:
        """Every answer that can arrive over a socket has an outcome, and always the same one."""
        sent = calls.made()
        question, asked = _asked(calls, sent)

        def lookup(response: Response) -> None:
            outcome, _ = _read("classify", response, calls.provider.classify, response)
            must(isinstance(outcome, get_args(Outcome)), "classify", f"it gives {outcome!r}, which is not an outcome")
            again, _ = calls.provider.classify(response)
            must(outcome == again, "classify", f"it reads the same answer (HTTP {response.status}) in two ways")
            for way in asked:
                found, _ = _read("read_lookup", response, calls.provider.read_lookup, response, question, way)
                must(
                    isinstance(found, get_args(AnyLookup)),
                    "read_lookup",
                    f"it gives {found!r}, which is not one of a look-up",
                )
                _read("next_page", response, calls.provider.next_page, response, question, way)
            _read("read_cancel", response, calls.provider.read_cancel, response, question)
            listing = calls.provider.listing(time.time() - 60, time.time())
            if listing is not None:
                _read("read_listing", response, calls.provider.read_listing, response, listing)
            _read("read_events", response, calls.provider.read_events, response.body)

        answers.for_each(lookup, tuple(each.body for each in sent.answers))

    def test_a_cut_answer_proves_nothing(self, calls: Calls) -> None:
        """Every prefix of a real answer, both as a truncated answer and as a complete one."""
        calls.over_http()
        sent = calls.made()
        world_must(bool(sent.answers), "a healthy call had no answer")
        real = sent.answers[-1]
        cut, _ = calls.provider.classify(replace(real, complete=False))
        must(isinstance(cut, Ambiguous), "classify", f"an incomplete answer is read as {name(cut)}")
        for end in range(1, len(real.body.rstrip())):
            found, _ = calls.provider.classify(replace(real, body=real.body[:end]))
            where = f"the first {end} of {len(real.body)} bytes of an answer are read as {name(found)}"
            must(isinstance(found, Ambiguous), "outcome", where)

    def test_a_cut_lookup_proves_nothing(self, calls: Calls) -> None:
        """The same for the answer to a question: a part of it shows neither an object nor an absence."""
        calls.over_http()
        sent = calls.made()
        calls.past_the_horizon()
        question = calls.question(sent)
        for way in calls.ways(sent):
            lookup, seen = calls.lookup(question, way)
            world_must(bool(seen), f"no answer came to {way.path} ({shown(lookup)})")
            whole = seen[0]
            for part in (replace(whole, complete=False), *_beginnings(whole)):
                found, _ = calls.provider.read_lookup(part, question, way)
                message = f"a part of the answer to {way.path} is read as {shown(found)}"
                must(isinstance(found, CouldNotAsk), "lookup", message)

    def test_a_proxys_page_proves_nothing(self, calls: Calls) -> None:
        """A proxy's page, under every status: no proof, no refusal, no absence."""
        sent = calls.made()
        question, asked = _asked(calls, sent)
        for status in answers.STATUSES:
            for page in answers.PAGES:
                response = Response(status, {"content-type": "text/html"}, page)
                outcome, _ = calls.provider.classify(response)
                message = f"a proxy's page with HTTP {status} is read as {name(outcome)}"
                must(_is_modest(outcome, status), "outcome", message)
                for way in asked:
                    lookup, _ = calls.provider.read_lookup(response, question, way)
                    message = f"a proxy's page with HTTP {status} is read as {shown(lookup)} by the question {way.path}"
                    must(isinstance(lookup, CouldNotAsk), "lookup", message)
                voided, _ = calls.provider.read_cancel(response, question)
                message = f"a proxy's page with HTTP {status} is read as {shown(voided)}"
                must(isinstance(voided, CouldNotAsk), "cancel_by_key", message)

    @pytest.mark.parametrize("fault", [Fault.PROXY_PAGE, Fault.GATEWAY_PAGE])
    def test_a_page_on_the_line_proves_nothing(self, calls: Calls, fault: Fault) -> None:
        """The same over a socket. After a gateway's 502 the effect may exist."""
        sent = calls.send(fault)
        acts = fault is Fault.GATEWAY_PAGE
        world_must(sent.made == acts, f"the fault {fault} had {sent.made} effects")
        modest = isinstance(sent.outcome, Ambiguous) or (isinstance(sent.outcome, NotExecuted) and not acts)
        must(modest and sent.outcome != NotExecuted("request"), "outcome", f"{fault} is read as {sent.word}")

    @pytest.mark.parametrize("fault", ["503", "429", "proxy_page", "cut_body"])
    def test_a_question_that_fails_is_no_absence(self, calls: Calls, fault: str) -> None:
        """Otherwise a provider in trouble would "say" that it has nothing, and idem would make the call again."""
        sent = calls.made()
        calls.past_the_horizon()
        for way in calls.ways(sent):
            calls.world.next_lookup(fault)
            lookup, _ = calls.lookup(calls.question(sent), way)
            message = f"the question {way.path}, answered with {fault}, is read as {shown(lookup)}"
            must(isinstance(lookup, CouldNotAsk), "lookup", message)

    def test_what_is_absent_is_not_absent_in_the_answer_to_a_write(self, calls: Calls) -> None:
        """Only a look-up can show `Absent`."""
        calls.over_http()
        calls.made()
        sent = calls.never_sent()
        for way in calls.ways(sent):
            _, seen = calls.lookup(calls.question(sent), way)
            for response in seen:
                outcome, _ = calls.provider.classify(response)
                message = f"the answer to a question about nothing, read as one to a write, is {name(outcome)}"
                must(not isinstance(outcome, Absent) and not settles_write(outcome), "outcome", message)


def settles_write(outcome: Outcome) -> bool:
    """Whether an outcome says that the effect exists, or that the provider decided against it."""
    return not isinstance(outcome, Ambiguous | NotExecuted)


def _asked(calls: Calls, sent: SentCall) -> tuple[Question, tuple[FrozenRequest, ...]]:
    question = calls.question(sent, sent.reference)
    return question, calls.provider.questions(question)


def _beginnings(whole: Response) -> list[Response]:
    length = len(whole.body.rstrip())
    return [replace(whole, body=whole.body[:end]) for end in range(0, length, max(1, length // 64))]


def _is_modest(outcome: Outcome, status: int) -> bool:
    if isinstance(outcome, NotExecuted):
        # A 4xx then means that something stopped our call, never that the provider refused it.
        return outcome.why in ("config", "throttled") and (400 <= status < 500 or status in OF_THE_LINE)
    return isinstance(outcome, Ambiguous) and not outcome.cached


def _read(function: str, response: Response, call: Any, *given: Any) -> Any:
    try:
        return call(*given)
    except Exception as error:
        where = f"for HTTP {response.status} with {len(response.body)} bytes"
        must(False, function, f"it raised {type(error).__name__} {where}: {error}")
