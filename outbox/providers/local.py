"""Providers that no HTTP call reaches: the base of a provider over a function, and the provider of local operations."""

from collections.abc import Mapping
from typing import NoReturn

from idem.outbox.domain.contract import LOCAL, Account, Contract, FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import Ambiguous, CouldNotAsk, LookupOutcome, Outcome, Seen
from idem.outbox.domain.provider import Page, Question
from idem.outbox.domain.webhook import Event, Webhook
from idem.outbox.values.errors import Unrenderable


class WithoutHttp:
    """What every provider without HTTP answers: it has no pages, no cancel, no list, no account check, no events."""

    @property
    def webhook(self) -> Webhook | None:
        return None

    def next_page(self, response: Response, question: Question, request: FrozenRequest) -> FrozenRequest | None:
        return None

    def cancel(self, question: Question) -> FrozenRequest | None:
        return None

    def read_cancel(self, response: Response, question: Question) -> tuple[LookupOutcome, Seen]:
        return CouldNotAsk(), Seen()

    def listing(self, since: float, until: float) -> FrozenRequest | None:
        return None

    def read_listing(self, response: Response, request: FrozenRequest) -> Page | None:
        return None

    def account_check(self) -> FrozenRequest | None:
        return None

    def read_account(self, response: Response) -> str | None:
        return None

    def kind(self, path: str) -> str | None:
        return None

    def read_events(self, body: bytes) -> tuple[Event, ...] | None:
        return None


class LocalProvider(WithoutHttp):
    """The provider of operations that call no provider. It gives their rows a provider, an account and an origin.

    idem never sends such a row, asks about it, or answers by it.
    """

    contract = Contract(LOCAL)
    accounts: Mapping[str, Account] = {LOCAL: Account(LOCAL, f"{LOCAL}://")}

    def freeze(self, request: ProviderRequest, provider_key: str) -> NoReturn:
        raise Unrenderable("this operation calls no provider")

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        return Ambiguous(), Seen()

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        return ()

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        return CouldNotAsk(), Seen()
