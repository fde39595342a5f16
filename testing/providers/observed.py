"""A provider that records every answer, and can be accelerated or asked in one way only."""

from dataclasses import replace
from typing import Any

from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.domain.outcomes import Look, Outcome, Seen
from idem.outbox.domain.provider import Page, Provider, Question


class Observed:
    """Passes everything on to the provider, and counts as one of its kind (`isinstance`), so that lanes call it alike.

    `answers` are those to writes, `lookups` those to questions, `heard` both, and those to cancels and lists.
    `deadline`: seconds for a call, instead of the contract's. `way`: the only one of its questions that is asked.
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

    def read_look(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[Look, Seen]:
        self.lookups.append(response)
        self.heard.append(response)
        return self._provider.read_look(response, question, request)

    def read_cancel(self, response: Response, question: Question) -> tuple[Look, Seen]:
        self.heard.append(response)
        return self._provider.read_cancel(response, question)

    def read_listing(self, response: Response, request: FrozenRequest) -> Page | None:
        self.pages += 1
        self.heard.append(response)
        return self._provider.read_listing(response, request)
