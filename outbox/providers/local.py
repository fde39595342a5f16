"""Nobody: the provider of operations that call none. No row of it is ever sent, asked about or answered by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from idem.outbox.domain.contract import LOCAL, Account, Contract, FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import Ambiguous, CouldNotAsk, Look, Outcome, Seen
from idem.outbox.domain.provider import Question
from idem.outbox.domain.webhook import Event, Webhook
from idem.outbox.values.errors import Unrenderable


class LocalProvider:
    """Keeps the tables whole: such rows have a provider, an account and an origin that nothing serves."""

    contract = Contract(LOCAL)
    accounts: Mapping[str, Account] = {LOCAL: Account(LOCAL, f"{LOCAL}://")}
    webhook: Webhook | None = None

    def freeze(self, request: ProviderRequest, provider_key: str) -> NoReturn:
        raise Unrenderable("this operation calls no provider")

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        return Ambiguous(), Seen()

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        return ()

    def read_look(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[Look, Seen]:
        return CouldNotAsk(), Seen()

    def next_page(self, response: Response, question: Question, request: FrozenRequest) -> None:
        return None

    def cancel(self, question: Question) -> None:
        return None

    def read_cancel(self, response: Response, question: Question) -> tuple[Look, Seen]:
        return CouldNotAsk(), Seen()

    def listing(self, since: float, until: float) -> None:
        return None

    def read_listing(self, response: Response, request: FrozenRequest) -> None:
        return None

    def account_check(self) -> None:
        return None

    def read_account(self, response: Response) -> None:
        return None

    def kind(self, path: str) -> None:
        return None

    def read_events(self, body: bytes) -> tuple[Event, ...] | None:
        return None
