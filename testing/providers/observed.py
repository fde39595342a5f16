"""A provider that records every answer, and can have a shorter deadline or only one way to ask."""

from dataclasses import replace
from typing import Any

from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.domain.outcomes import LookupOutcome, Outcome, Seen
from idem.outbox.domain.provider import Page, Provider, Question


class Observed:
    """Forwards everything to the provider, and looks like one of its class (`isinstance`), so that lanes treat it
    alike.

    `answers` are the answers to writes, `lookups` those to questions; `heard` has both, and those to cancels and lists.
    `deadline`: seconds for a call, if shorter than the contract's. `way`: the only question that is asked.
    """

    def __init__(self, provider: Provider, *, deadline: float | None = None, way: FrozenRequest | None = None) -> None:
        self._provider = provider
        self._way = way
        own = provider.contract
        self.contract = own if deadline is None else replace(own, deadline=min(deadline, own.deadline))
        self.answers: list[Response] = []
        self.lookups: list[Response] = []
        self.heard: list[Response] = []
        self.pages = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._provider)

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        self.answers.append(response)
        self.heard.append(response)
        return self._provider.classify(response)

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        return self._provider.questions(question) if self._way is None else (self._way,)

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        self.lookups.append(response)
        self.heard.append(response)
        return self._provider.read_lookup(response, question, request)

    def read_cancel(self, response: Response, question: Question) -> tuple[LookupOutcome, Seen]:
        self.heard.append(response)
        return self._provider.read_cancel(response, question)

    def read_listing(self, response: Response, request: FrozenRequest) -> Page | None:
        self.pages += 1
        self.heard.append(response)
        return self._provider.read_listing(response, request)
