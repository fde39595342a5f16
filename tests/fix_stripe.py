"""A shop that pays through `kind = "stripe"`, over a bank in its Stripe-like mode, every daemon stepped by hand."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
import stripe
from fix_accept import Acceptor
from fix_database import ENVIRONMENT
from fix_spine import Faults, Spine
from fix_sql import engine_of
from fix_waiting import until
from fix_webhooks import free_port, serving

from idem.decisions import Accepted, Decision
from idem.outbox.config import load
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.providers.http import HttpProvider
from idem.testing.bank import Bank, BankSettings, StripeSettings, WebhookOrder
from idem.testing.bank import BankAccount as BankAccount

SECRET = "whsec_0123456789abcdef0123456789abcdef"
KEY = "sk_test_of_the_shop"
SETTINGS = Path(__file__).with_name("stripe_settings.toml").read_text()


def configured(path: Path, origin: str, more: str = "", fetch: bool = False) -> Catalogue:
    """The catalogue of the shop, out of an idem.toml like a user's."""
    file = path / "idem.toml"
    file.write_text(
        SETTINGS % {"environment": ENVIRONMENT, "origin": origin, "more": more, "fetch": str(fetch).lower()}
    )
    found = load(file, {"STRIPE_SECRET_KEY": KEY, "STRIPE_WEBHOOK_SECRET": SECRET})
    # Every worker that is stepped by hand would ask at its start, and take the first fault of a script for itself.
    unasked = {name: replace(cast(HttpProvider, each), account_question=None) for name, each in found.providers.items()}
    return Catalogue(ENVIRONMENT, unasked, found.operations)


@dataclass
class Shop(Spine):
    """The spine with its operations at Stripe."""

    hooks: str = ""

    def ask(self, key: str, operation: str = "pay", **params: Any) -> Decision:
        given = {"amount": 500, "card": "pm_card_visa", **params}
        with engine_of(self.url).begin() as connection:
            return self.acceptor.accept(connection, "t", operation, key, given)

    def asked(self, key: str = "k1", operation: str = "pay", **params: Any) -> UUID:
        decision = self.ask(key, operation, **params)
        assert isinstance(decision, Accepted), decision
        return decision.intent_id

    async def done(self, key: str = "k1", operation: str = "pay", *, faults: Faults = (), **params: Any) -> UUID:
        """Accepted and sent once; the bank answers with these faults."""
        intent = self.asked(key, operation, **params)
        await self.work(faults=faults)
        return intent

    async def state(self, intent: UUID) -> tuple[str, str | None]:
        """The intent's state and its row's status."""
        row = await self.row_if_any(intent)
        found = await self.one("SELECT state FROM idem.intents WHERE id = %(i)s", i=intent)
        return found["state"], None if row is None else row["status"]

    async def end(self, intent: UUID) -> tuple[str | None, str | None]:
        """How the intent ended, and the provider's reference."""
        found = await self.one("SELECT outcome, provider_reference FROM idem.intents WHERE id = %(i)s", i=intent)
        return found["outcome"], found["provider_reference"]

    async def provider_key(self, intent: UUID) -> str:
        found = await self.one("SELECT provider_key::text AS k FROM idem.requests WHERE intent_id = %(i)s", i=intent)
        return str(found["k"])

    def sends(self) -> int:
        return len([r for r in self.bank.log.requests if r.method == "POST"])

    def objects(self, kind: str = "payment_intent") -> list[str]:
        return [each["id"] for each in self.bank.stripe_objects(kind)]

    async def comes_to(self, intent: UUID, state: str) -> None:
        """Wait for the events that say so; one that met a locked row is applied by the reconciler."""

        async def there() -> bool:
            await self.reconcile()
            return (await self.state(intent))[0] == state

        await until(there)

    async def told(self, count: int) -> list[dict[str, Any]]:
        """The events that were taken in, once there are so many, and no more."""
        kept: list[dict[str, Any]] = []

        async def come() -> bool:
            kept[:] = await self.all("SELECT type, verdict, intent_id FROM idem.webhook_events ORDER BY id")
            return len(kept) >= count

        await until(come)
        assert len(kept) == count, kept
        return kept

    async def by_hand(self, do: Callable[[stripe.StripeClient], Any]) -> Any:
        """What somebody else does with Stripe's own library: another program, or a person at the dashboard."""
        sdk = stripe.StripeClient(KEY, base_addresses={"api": self.bank.url}, max_network_retries=0)
        return await asyncio.to_thread(do, sdk)

    async def post(self, event: Mapping[str, Any]) -> str:
        """Send an event of Stripe's to the endpoint; what became of it."""
        body = json.dumps(event).encode()
        async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
            answer = await http.post(self.hooks, content=body, headers=signed(body))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["verdict"])


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """The headers of a delivery of Stripe's."""
    stamp = int(time.time())
    mac = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"content-type": "application/json", "stripe-signature": f"t={stamp},v1={mac}"}


def event(kind: str, thing: Mapping[str, Any], key: str | None = None, id: str = "evt_by_hand") -> dict[str, Any]:
    """An event as Stripe writes it."""
    return {
        "id": id,
        "object": "event",
        "created": int(time.time()),
        "type": kind,
        "request": {"id": None, "idempotency_key": key},
        "data": {"object": dict(thing)},
    }


@contextlib.asynccontextmanager
async def shop(
    database: Database,
    url: str,
    path: Path,
    *,
    order: WebhookOrder | None = None,
    more: str = "",
    fetch: bool = False,
    stripe: StripeSettings | None = None,
    **account: Any,
) -> AsyncIterator[Shop]:
    """The shop; with an `order` its bank sends events to the endpoint, which stands in any case."""
    port = free_port()
    hooks = f"http://127.0.0.1:{port}/webhooks/stripe"
    ours = BankAccount(
        "main",
        KEY,
        api="stripe",
        stripe=stripe or StripeSettings(),
        webhook_url=None if order is None else hooks,
        webhook_secret=SECRET,
        webhook=order or WebhookOrder(),
        **account,
    )
    settings = BankSettings(log=path / "bank.jsonl", durable=False, require_auth=True, accounts=(ours,))
    async with Bank(settings) as bank:
        known = configured(path, bank.url, more, fetch)
        async with serving(url, known, port=port):
            yield Shop(database, bank, known, Acceptor(known.operations, known.providers), url, hooks=hooks)
