"""A provider that a function of the user's sends to. It speaks no HTTP: its requests and answers are values. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from idem.outbox.domain import sending
from idem.outbox.domain.contract import Account, Contract, FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import Ambiguous, LookupOutcome, Outcome, Seen
from idem.outbox.domain.provider import Question
from idem.outbox.domain.sending import AskAbout, Send, SendRequest
from idem.outbox.providers.body_encoding import MEDIA_TYPES, encoded
from idem.outbox.providers.local import WithoutHttp
from idem.outbox.providers.template import fill
from idem.outbox.values.errors import Unrenderable

KEY: Final = "idem-key"
"""Where the frozen request keeps the provider key, which the function is given."""
METHOD: Final = "SEND"
QUESTION: Final = "ASK"


@dataclass(frozen=True, slots=True)
class Asking(FrozenRequest):
    """A question on its way to the user's look-up. It is never stored."""

    question: Question


@dataclass(frozen=True, slots=True)
class Returned(Response):
    """What a function of the user's has returned, in the place of a response."""

    value: object = None
    said: tuple[Outcome, str] | None = None
    """Of a send: what the value says."""


def returned(value: object) -> Returned:
    """What a look-up has returned. It has no status of HTTP."""
    return Returned(0, {}, b"", value=value)


def sent(value: object, cap: float) -> Returned:
    """What a send has returned; what decides nothing counts against the provider. `cap`: the longest wait, seconds."""
    said = sending.outcome(value, cap)
    return Returned(0, {}, b"", not isinstance(said[0], Ambiguous), value=value, said=said)


@dataclass(frozen=True)
class SendProvider(WithoutHttp):
    """A provider over a function. `send` makes a call, `ask_about` looks one up; each is sync or async."""

    contract: Contract
    accounts: Mapping[str, Account]
    send: Send
    ask_about: AskAbout | None = None

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        """The payload as compact UTF-8 JSON, and the key beside it. Raises Unrenderable."""
        if request.headers:
            raise Unrenderable(f"provider {self.contract.provider} is a function and has no headers: use the payload")
        body = encoded(fill(request.json, provider_key), "json")
        return FrozenRequest(METHOD, request.path, {"content-type": MEDIA_TYPES["json"], KEY: provider_key}, body)

    def given(self, request: FrozenRequest, account: Account) -> SendRequest:
        """What the function is given of a frozen request."""
        return SendRequest(request.path.lstrip("/"), account.name, request.headers[KEY], request.body)

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        """What the function has returned. Never raises."""
        known = response.said if isinstance(response, Returned) else None
        value = response.value if isinstance(response, Returned) else response
        outcome, note = known or sending.outcome(value, self.contract.retry_after_cap)
        return outcome, Seen(note=note)

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        """The one question, where there is a look-up."""
        return () if self.ask_about is None else (Asking(QUESTION, question.path or "/", {}, b"", question),)

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        """What the look-up has returned. Never raises."""
        value = response.value if isinstance(response, Returned) else response
        lookup, note = sending.lookup(value, self.contract.retry_after_cap)
        return lookup, Seen(note=note)
