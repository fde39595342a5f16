"""A provider that records every answer, and can be accelerated or asked in one way only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from idem.outbox.domain.contract import Account, Contract, FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import Look, Outcome, Seen
from idem.outbox.domain.provider import Page, Provider, Question
from idem.outbox.domain.sending import AskAbout, Send
from idem.outbox.domain.webhook import Event, Webhook
from idem.outbox.providers.send import SendProvider


class Observed:
    """Hands everything on to the provider. `answers` are those to writes, `lookups` those to questions,
    `heard` both, and those to cancels and lists.

    `deadline`: seconds for a call, instead of the contract's. `way`: the only one of its questions that is asked.
    """

    def __init__(self, provider: Provider, *, deadline: float | None = None, way: FrozenRequest | None = None) -> None:
        self._provider = provider
        self._way = way
        own = provider.contract
        self._contract = own if deadline is None else replace(own, deadline=min(deadline, own.deadline))
        self.answers: list[Response] = []
        self.lookups: list[Response] = []
        self.heard: list[Response] = []
        self.pages = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    @property
    def contract(self) -> Contract:
        return self._contract

    @property
    def accounts(self) -> Mapping[str, Account]:
        return self._provider.accounts

    @property
    def webhook(self) -> Webhook | None:
        return self._provider.webhook

    def kind(self, path: str) -> str | None:
        return self._provider.kind(path)

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        return self._provider.freeze(request, provider_key)

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

    def next_page(self, response: Response, question: Question, request: FrozenRequest) -> FrozenRequest | None:
        return self._provider.next_page(response, question, request)

    def cancel(self, question: Question) -> FrozenRequest | None:
        return self._provider.cancel(question)

    def read_cancel(self, response: Response, question: Question) -> tuple[Look, Seen]:
        self.heard.append(response)
        return self._provider.read_cancel(response, question)

    def listing(self, since: float, until: float) -> FrozenRequest | None:
        return self._provider.listing(since, until)

    def read_listing(self, response: Response, request: FrozenRequest) -> Page | None:
        self.pages += 1
        self.heard.append(response)
        return self._provider.read_listing(response, request)

    def account_check(self) -> FrozenRequest | None:
        return self._provider.account_check()

    def read_account(self, response: Response) -> str | None:
        return self._provider.read_account(response)

    def read_events(self, body: bytes) -> tuple[Event, ...] | None:
        return self._provider.read_events(body)


class ObservedFunction(Observed, SendProvider):
    """The same of a provider that a function sends to."""

    def __init__(
        self, provider: SendProvider, *, deadline: float | None = None, way: FrozenRequest | None = None
    ) -> None:
        super().__init__(provider, deadline=deadline, way=way)
        self._function = provider

    @property
    def send(self) -> Send:
        return self._function.send

    @property
    def look(self) -> AskAbout | None:
        return self._function.look


def observed(provider: Provider, *, deadline: float | None = None, way: FrozenRequest | None = None) -> Observed:
    """The provider, observed; the lane makes its calls in the same way as before."""
    if isinstance(provider, SendProvider):
        return ObservedFunction(provider, deadline=deadline, way=way)
    return Observed(provider, deadline=deadline, way=way)
