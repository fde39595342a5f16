"""Contracts and providers that lie, one for each rule of the suite."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from provider_conformance.fix_worlds import BankWorld, bank_world, ledger

from idem.outbox.domain.contract import FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.provider import Provider
from idem.outbox.domain.webhook import Signed, Webhook
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outcomes import Absent, LookupOutcome, NotExecuted, Outcome, Refused, Succeeded
from idem.sending import Question
from idem.testing.bank import CancelByKey

PAYMENT = ProviderRequest("POST", "/payments", {"amount": 500, "currency": "eur"})
ANOTHER = ProviderRequest("POST", "/payments", {"amount": 700, "currency": "eur"})

Opened = AbstractContextManager[BankWorld]


@dataclass(frozen=True)
class Liar:
    """A liar, and the rule that finds it. The failure must name the setting `says`. `more`: arguments of the rule."""

    rule: str
    why: str
    says: str
    opened: Callable[[], Opened]
    more: tuple[Any, ...] = ()


def opened(provider: Provider, *, bank: Mapping[str, Any] | None = None, **more: Any) -> Callable[[], Opened]:
    """A bank as LEDGER describes it, with the changes of `bank`, and this provider."""
    assert isinstance(provider, HttpProvider)
    account = {"cancel": CancelByKey(blocks_late_requests=True), **(bank or {})}
    request = more.pop("request", PAYMENT)
    return lambda: bank_world(provider, request, another=ANOTHER, **{"line": True, "webhooks": True, **more}, **account)


def contract(**changes: Any) -> HttpProvider:
    """The honest provider, with another contract."""
    honest = ledger()
    return replace(honest, contract=replace(honest.contract, **changes))


def like(kind: type[HttpProvider], honest: HttpProvider | None = None) -> HttpProvider:
    """A provider of another class with all members of the honest one."""
    honest = honest or ledger()
    return kind(**{name: getattr(honest, name) for name in honest.__dataclass_fields__})


class Forgetful(HttpProvider):
    """Leaves the key out."""

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        frozen = super().freeze(request, provider_key)
        headers = {name: text for name, text in frozen.headers.items() if name != "idempotency-key"}
        return replace(frozen, headers=headers)


class Hasty(HttpProvider):
    """Puts the time into its requests, in units that make two of them differ."""

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        return super().freeze(replace(request, json={**request.json, "at": time.time_ns()}), provider_key)


class Random(HttpProvider):
    """Puts random bytes into its requests."""

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        return super().freeze(replace(request, json={**request.json, "nonce": str(uuid4())}), provider_key)


class Fragile(HttpProvider):
    """Expects a message in every error."""

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        if response.status == 400:
            return NotExecuted("request"), Seen(note=json.loads(response.body)["error"]["message"])
        return super().classify(response)


class Gullible(HttpProvider):
    """Believes every status."""

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        seen = Seen(response.status, started=True)
        if response.status in (200, 201):
            return Succeeded("pay_1"), seen
        if response.status == 403:
            return Refused(None), seen
        return super().classify(response)

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        if response.status in (200, 201) and b"succeeded" not in response.body:
            return Absent(), Seen(response.status, started=True)
        return super().read_lookup(response, question, request)


class Confident(HttpProvider):
    """Sees the requested object in every answer."""

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        return Succeeded(question.reference, "succeeded"), Seen(response.status, started=True)


class Blind(StandardWebhooks):
    """Verifies everything."""

    def read(self, delivery: Signed) -> Any:
        return Believed()


class Believed:
    """A claim that needs no secret."""

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> str:
        return "evt_1"


def hearing(scheme: Any, secrets: tuple[bytes, ...] | None = None) -> HttpProvider:
    """The honest provider with another scheme or other secrets."""
    honest = ledger()
    assert honest.webhook is not None
    known = honest.webhook.secrets if secrets is None else {"main": secrets}
    return replace(honest, webhook=Webhook(scheme, known))


def ignoring_its_query() -> HttpProvider:
    """Asks for all objects, and takes the first."""
    honest = ledger()
    return replace(
        honest,
        lookups=tuple(
            each.model_copy(update={"path": "/payments?limit=1", "match": None}) if each.by == "key" else each
            for each in honest.lookups
        ),
    )


def listing_everything() -> HttpProvider:
    """Its list ignores the period, and does not say when objects were made."""
    honest = ledger()
    assert honest.ledger is not None
    everything = {"path": "/payments?limit=1000", "created": None}
    return replace(honest, ledger=honest.ledger.model_copy(update=everything))


class Throttled(BankWorld):
    """Its 429 comes after the effect."""

    def next(self, fault: str) -> None:
        if fault != "429":
            return super().next(fault)
        assert self.line is not None
        self.line._rewrite = _throttled
        return None


def _throttled(method: str, target: str, answer: Any) -> Any:
    error = {"error": {"type": "rate_limit_error", "code": "rate_limited", "message": "Too many requests."}}
    return answer if method == "GET" else (429, [("content-type", "application/json")], json.dumps(error).encode())


class Acting(BankWorld):
    """Its drop before acting comes after acting."""

    def next(self, fault: str) -> None:
        super().next("act_then_drop" if fault == "drop_before_acting" else fault)


class Uncounted(BankWorld):
    """Counts no effects."""

    def effects(self) -> int:
        return 0
