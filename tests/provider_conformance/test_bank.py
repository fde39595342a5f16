"""The bank with each of the four meanings of `replay`, and a contract that says so."""

from collections.abc import Iterator

import pytest
from provider_conformance.fix_worlds import BankWorld, bank_world, ledger

from idem.outbox.domain.contract import ProviderRequest
from idem.testing.bank import CancelByKey
from idem.testing.providers import ProviderConformance

pytestmark = pytest.mark.sample(4)  # `make test` runs each test of the suite with one of the four

PAYMENT = ProviderRequest("POST", "/payments", {"amount": 500, "currency": "eur"})
ANOTHER = ProviderRequest("POST", "/payments", {"amount": 700, "currency": "eur"})
KEY = {"carrier": "header", "name": "Idempotency-Key", "retention": "24h"}


class TestStored(ProviderConformance):
    @pytest.fixture
    def world(self) -> Iterator[BankWorld]:
        more = {
            "line": True,
            "webhooks": True,
            "cancel": CancelByKey(blocks_late_requests=True),
            "answers_carry": "Bank-Request",
        }
        with bank_world(ledger(answers_carry="bank-request"), PAYMENT, another=ANOTHER, **more) as world:
            yield world


class TestCurrent(ProviderConformance):
    """A cancel blocks no late request; a key of a 429 that stands before execution."""

    @pytest.fixture
    def world(self) -> Iterator[BankWorld]:
        cancel = {"path": "/payments/cancel", "body": {"key": "{idem.key}"}}
        provider = ledger(
            key={**KEY, "replay": "current"}, cancel_by_key=cancel, throttles_before_execution=True, deployment_tag=None
        )
        with bank_world(provider, PAYMENT, another=ANOTHER, line=True, webhooks=True, replay="current") as world:
            yield world


class TestSuccessOnly(ProviderConformance):
    @pytest.fixture
    def world(self) -> Iterator[BankWorld]:
        provider = ledger(key={**KEY, "replay": "success_only"}, cancel_by_key=None)
        with bank_world(provider, PAYMENT, another=ANOTHER, webhooks=True, replay="success_only") as world:
            yield world


class TestNone(ProviderConformance):
    """A bank that knows no keys: ours travels as the reference of the order."""

    @pytest.fixture
    def world(self) -> Iterator[BankWorld]:
        provider = ledger(
            key={"carrier": "none"},
            deployment_tag={"at": "/metadata/idem_deployment", "key_at": "/reference"},
            lookup={
                "by_reference": {
                    "path": "/payments?reference={idem.key}",
                    "object": "/data/0",
                    "match": "/reference",
                    "empty": "/data",
                },
                "by_id": {"path": "/payments/{idem.reference}"},
                "horizon": "10s",
            },
            cancel_by_key=None,
            webhook={
                "scheme": "standard",
                "secrets": [{"env": "LEDGER_SECRET"}],
                "object": "/data",
                "type": "/type",
                "key": "/data/reference",
                "reference": "/data/id",
            },
        )
        with bank_world(provider, PAYMENT, line=True, webhooks=True, replay="none") as world:
            yield world
