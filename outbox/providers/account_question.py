"""The question whose account the credentials are: its request, and where its answer names the account. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.providers import outcome_rules
from idem.outbox.providers import response as document
from idem.outbox.providers.lookups import GET
from idem.outbox.values.json_pointer import Tokens


@dataclass(frozen=True, slots=True)
class AccountQuestion:
    """A GET of `path`; `at` is where its answer has what names the account, always the same for the same account."""

    path: str
    at: Tokens

    def request(self) -> FrozenRequest:
        """The request; the credentials are added when it is sent."""
        return FrozenRequest("GET", self.path, GET, b"")

    def read(self, response: Response) -> str | None:
        """What names the account; None for an answer that does not say it. Never raises."""
        answer = document.read(response)
        return document.reference(answer.find(self.at)) if answer.status in outcome_rules.SUCCESS else None
