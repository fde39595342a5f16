"""A shop that pays through `kind = "stripe"`, over a bank in its Stripe-like mode, all daemons stepped by hand."""

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
    """The catalogue of the shop, from an idem.toml like a user's."""
    file = path / "idem.toml"
    file.write_text(
        SETTINGS % {"environment": ENVIRONMENT, "origin": origin, "more": more, "fetch": str(fetch).lower()}
    )
    found = load(file, {"STRIPE_SECRET_KEY": KEY, "STRIPE_WEBHOOK_SECRET": SECRET})
    # Without the account's question: each worker that is stepped by hand would ask it at its start, and get the
    # script's first fault.
    unasked = {name: replace(cast(HttpProvider, each), account_question=None) for name, each in found.providers.items()}
    return Catalogue(ENVIRONMENT, unasked, found.operations)


@dataclass
class Shop(Spine):
    """The spine with operations at Stripe."""

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
        """Accept an intent and send it once; the bank plays these faults."""
        intent = self.asked(key, operation, **params)
        await self.work(faults=faults)
        return intent

    async def state(self, intent: UUID) -> tuple[str, str | None]:
        """The intent's state and its row's status."""
        row = await self.row_if_any(intent)
        found = await self.one("SELECT state FROM idem.intents WHERE id = %(i)s", i=intent)
        return found["state"], None if row is None else row["status"]

    async def end(self, intent: UUID) -> tuple[str | None, str | None]:
        """The outcome of the intent, and the provider's reference."""
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
        """Wait until events bring the intent into this state; the reconciler applies an event that met a locked row."""

        async def there() -> bool:
            await self.reconcile()
            return (await self.state(intent))[0] == state

        await until(there)

    async def told(self, count: int) -> list[dict[str, Any]]:
        """Wait for this many stored events; returns them, and fails if there are more."""
        kept: list[dict[str, Any]] = []

        async def come() -> bool:
            kept[:] = await self.all("SELECT type, fate, intent_id FROM idem.webhook_events ORDER BY id")
            return len(kept) >= count

        await until(come)
        assert len(kept) == count, kept
        return kept

    async def by_hand(self, do: Callable[[stripe.StripeClient], Any]) -> Any:
        """Do something with Stripe's own library, like another program or a person at the dashboard."""
        sdk = stripe.StripeClient(KEY, base_addresses={"api": self.bank.url}, max_network_retries=0)
        return await asyncio.to_thread(do, sdk)

    async def post(self, event: Mapping[str, Any]) -> str:
        """Send an event of Stripe to the endpoint; returns its fate."""
        body = json.dumps(event).encode()
        async with httpx.AsyncClient(timeout=30, trust_env=False, verify=False) as http:
            answer = await http.post(self.hooks, content=body, headers=signed(body))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["fate"])


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """The headers of a delivery of Stripe."""
    stamp = int(time.time())
    mac = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"content-type": "application/json", "stripe-signature": f"t={stamp},v1={mac}"}


def event(kind: str, thing: Mapping[str, Any], key: str | None = None, id: str = "evt_by_hand") -> dict[str, Any]:
    """An event in Stripe's form."""
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
    """The shop with a running endpoint; only with an `order` its bank sends events to it."""
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
