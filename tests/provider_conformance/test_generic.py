"""The generic HTTP provider as examples/idem.toml writes it, and Stripe as idem knows it, against the bank."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from provider_conformance.fix_worlds import SECRET, TOKEN, BankWorld, bank_world

from idem.outbox.config import load
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.providers.http import HttpProvider
from idem.testing.bank import StripeSettings
from idem.testing.providers import ProviderConformance

pytestmark = pytest.mark.sample(2)  # `make test` runs each test of the suite with one of the two

EXAMPLE = Path(__file__).parents[2] / "examples" / "idem.toml"
STRIPE = """
environment = "conformance"

[providers.stripe]
kind = "stripe"
answers_carry = "Request-Id"
deadline = "5s"
flight_limit = "10s"
accounts.main = { authorization = { env = "STRIPE_KEY", prefix = "Bearer " } }
webhook.secrets = [{ env = "STRIPE_SECRET" }]
"""
CARD = {"amount": 500, "currency": "eur", "payment_method": "pm_card_visa", "confirm": True}


def configured(path: Path, name: str, **env: str) -> HttpProvider:
    """A provider of a configuration."""
    provider = load(path, env).providers[name]
    assert isinstance(provider, HttpProvider)
    return provider


class TestExample(ProviderConformance):
    @pytest.fixture
    def world(self) -> Iterator[BankWorld]:
        request = ProviderRequest("POST", "/payments", {"amount": 500, "currency": "eur"})
        another = ProviderRequest("POST", "/payments", {"amount": 700, "currency": "eur"})
        provider = configured(EXAMPLE, "bank", BANK_TOKEN=TOKEN)
        with bank_world(provider, request, another=another) as world:
            yield world


class StripeWorld(BankWorld):
    """An account with Stripe's API."""

    page_size = 100

    def due(self) -> int:
        return len(self.bank.stripe_events(account="main"))

    def foreign(self) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        form = {name: str(value).lower() for name, value in CARD.items()}
        httpx.post(f"{self.bank.url}/v1/payment_intents", data=form, headers=headers).raise_for_status()


class TestStripe(ProviderConformance):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[BankWorld]:
        file = tmp_path / "idem.toml"
        file.write_text(STRIPE)
        provider = configured(file, "stripe", STRIPE_KEY=TOKEN, STRIPE_SECRET=SECRET)
        request = ProviderRequest("POST", "/v1/payment_intents", CARD)
        another = ProviderRequest("POST", "/v1/payment_intents", {**CARD, "amount": 700})
        stripe = StripeSettings(events_lag=30.0)
        with bank_world(
            provider, request, another=another, line=True, kind=StripeWorld, webhooks=True, api="stripe", stripe=stripe
        ) as world:
            yield world
