"""Nobody: the provider of operations that call none. No row of it is ever sent, asked about or answered by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from idem.outbox.contract import (
    Account,
    Contract,
    Event,
    FrozenRequest,
    ProviderRequest,
    Question,
    Response,
    Webhook,
)
from idem.outbox.errors import Unrenderable
from idem.outbox.outcomes import Ambiguous, CouldNotAsk, Look, Outcome, Seen

NAME: Final = "nobody"
"""Reserved: no provider of a configuration may have this name."""


class Nobody:
    """Keeps the tables whole: such rows have a provider, an account and an origin that nothing serves."""

    contract = Contract(NAME)
    accounts: Mapping[str, Account] = {NAME: Account(NAME, f"{NAME}://")}
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

    def read_event(self, body: bytes) -> Event | None:
        return None
