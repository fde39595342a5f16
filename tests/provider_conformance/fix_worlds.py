"""The bank as a world of the conformance suite: its faults, its clock, its events."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from fix_server import Asked, served

from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.domain.contract import Account, ProviderRequest
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.testing.bank import Bank, BankAccount, BankSettings, Received
from idem.testing.providers import Line, NotSupported, Signed, World

SECRET = "whsec_aWRlbSBiYW5rIHRlc3Qgc2VjcmV0IG9mIDMyIGJ5dGVz"
TOKEN = "main-token-1f2e3d"
LAG = 5.0

NAMES = {
    "stall": "act_then_stall:5",
    "proxy_page": "html_403",
    "500_after_acting": "act_then_500",
    "500_cached": "500_cached",
    "409": "409_in_flight",
    "refused_request": "422_before_acting",
    "pending": "pending:3600",
    "requires_action": "requires_action:3600",
}
"""The bank's names of faults, if they differ."""

PLAIN = frozenset({"act_then_drop", "drop_before_acting", "cut_body", "429", "503", "decline"})

LEDGER = Path(__file__).with_name("worlds_ledger.toml").read_text()


def ledger(text: str = LEDGER, **changes: Any) -> HttpProvider:
    """The bank's contract; `changes` replace tables of it, None removes one."""
    tables = {**tomllib.loads(text), **changes}
    settings = ProviderSettings.model_validate({name: each for name, each in tables.items() if each is not None})
    secrets = {"main": (StandardWebhooks().parse_secret(SECRET),)}
    account = Account("main", settings.accounts["main"].origin, {"authorization": f"Bearer {TOKEN}"})
    made = settings.build("ledger", {"main": account}, secrets, "conformance")
    assert isinstance(made, HttpProvider)
    return made


@dataclass
class Endpoint:
    """Receives the bank's deliveries."""

    taken: list[Signed] = field(default_factory=list)

    def answer(self, asked: Asked) -> tuple[int, bytes]:
        headers = [(name.encode(), text.encode()) for name, text in asked.headers.items()]
        self.taken.append(Signed(headers, asked.body))
        return 200, b""


class BankWorld(World):
    """One account of a bank."""

    patience = 0.6
    late = 1.2
    page_size = 2

    def __init__(self, bank: Bank, provider: Provider, request: ProviderRequest, **more: Any) -> None:
        super().__init__(provider, "main", request, **more)
        self.bank = bank
        self.endpoint: Endpoint | None = None

    def effects(self) -> int:
        return len(self.bank.log.effects(account="main"))

    def next(self, fault: str) -> None:
        name = f"stall_before_acting:{self.late}" if fault == "act_late" else NAMES.get(fault, fault)
        if fault in PLAIN or fault in NAMES or fault == "act_late":
            self.bank.script(_asks_for_an_effect, [name])
        else:
            super().next(fault)

    def next_lookup(self, fault: str) -> None:
        self.bank.script(_asks, [NAMES.get(fault, fault)])

    def later(self, seconds: float) -> None:
        self.bank.shift_clock(seconds)

    def deliveries(self) -> Sequence[Signed]:
        if self.endpoint is None:
            return super().deliveries()
        due, end = self.due(), time.monotonic() + 10
        while len(self.endpoint.taken) < due and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.1)
        return list(self.endpoint.taken)

    def due(self) -> int:
        """How many deliveries there should be by now."""
        return len(self.bank.log.payments())

    def foreign(self) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        if not self.request.path.startswith("/payments"):
            raise NotSupported("World.foreign is for the bank's own API")
        httpx.post(f"{self.bank.url}/payments", json=self.request.json, headers=headers).raise_for_status()


@contextmanager
def bank_world(
    provider: HttpProvider, request: ProviderRequest, *, line: bool = False, kind: type[BankWorld] = BankWorld,
    another: ProviderRequest | None = None, webhooks: bool = False, **account: Any,
) -> Iterator[BankWorld]:  # fmt: skip
    """A bank with one account, and the provider pointed at it; `account` are members of the bank's `BankAccount`."""
    account = {"name": "main", "token": TOKEN, "lookup_lag": LAG, "webhook_secret": SECRET, **account}
    with ExitStack() as stack:
        endpoint = Endpoint() if webhooks else None
        if endpoint is not None:
            account["webhook_url"] = stack.enter_context(served(endpoint.answer)) + "/"
        settings = BankSettings(durable=False, require_auth=True, accounts=(BankAccount(**account),))
        bank = stack.enter_context(Bank(settings).in_thread())
        way = stack.enter_context(Line(bank.url)) if line else None
        world = kind(bank, pointed(provider, bank.url), request, another=another, line=way)
        world.endpoint = endpoint
        yield world


def pointed(provider: HttpProvider, origin: str) -> HttpProvider:
    """The provider with all accounts at this origin."""
    accounts = {name: replace(each, origin=origin) for name, each in provider.accounts.items()}
    return replace(provider, accounts=accounts)


def _asks_for_an_effect(request: Received) -> bool:
    return request.asks == "effect"


def _asks(request: Received) -> bool:
    return request.asks == "lookup"
