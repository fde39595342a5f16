"""The sender of events, signed as Standard Webhooks has it; twice, late or out of order where it is told to."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import math
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from idem.testing.bank.answers import encoded
from idem.testing.bank.book import Book
from idem.testing.bank.clock import Clock
from idem.testing.bank.errors import SettingsError
from idem.testing.bank.ledger import Ledger
from idem.testing.bank.records import Payment, WebhookSent
from idem.testing.bank.settings import Account, BankSettings, WebhookOrder

# Seconds before each further try of a delivery that was not answered 2xx.
RETRIES = (0.5, 2.0, 8.0, 30.0)


@dataclass(frozen=True)
class _Event:
    id: str
    type: str
    at: float
    account: Account
    payment: Payment
    body: bytes


class Webhooks:
    """Announces what becomes of payments, to the accounts that have a `webhook_url`."""

    def __init__(self, settings: BankSettings, clock: Clock, ledger: Ledger, book: Book) -> None:
        self._accounts = {account.name: account for account in settings.accounts if account.webhook_url is not None}
        self._clock = clock
        self._ledger = ledger
        self._book = book
        self._client: httpx.AsyncClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: defaultdict[str, list[_Event]] = defaultdict(list)

    def start(self) -> None:
        """Begin, with what an earlier run of the bank has not delivered."""
        if not self._accounts:
            return
        self._client = httpx.AsyncClient(timeout=10, trust_env=False)
        done = {r.id for r in self._ledger.records if isinstance(r, WebhookSent) and _accepted(r.status)}
        for payment in [r for r in self._ledger.records if isinstance(r, Payment)]:
            self.announce(payment, None, done)

    async def stop(self) -> None:
        """End; what is not delivered yet is so at the next start, if the bank has a log."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def announce(
        self, payment: Payment, order: WebhookOrder | None, done: set[str] | frozenset[str] = frozenset()
    ) -> None:
        """Send the events of a payment, each when it is due; `done` are ids that need no sending any more."""
        account = self._accounts.get(payment.account)
        if account is None or self._client is None:
            return
        moments = [(payment.status, payment.at)]
        if payment.becomes is not None and payment.settles_at is not None:
            moments.append((payment.becomes, payment.settles_at))
        for status, at in moments:
            event = self._event(account, payment, status, at)
            if event.id not in done:
                self._start(self._send(event, order or account.webhook))

    def _event(self, account: Account, payment: Payment, status: str, at: float) -> _Event:
        kind = f"payment.{status}"
        content = {
            "type": kind,
            "timestamp": datetime.fromtimestamp(at, UTC).isoformat(),
            "data": self._book.shown(account, payment, status),
        }
        return _Event(f"evt_{payment.id.removeprefix('pay_')}_{status}", kind, at, account, payment, encoded(content))

    async def _send(self, event: _Event, order: WebhookOrder) -> None:
        await self._clock.until(event.at + order.delay)
        held = self._held[event.account.name]
        held.extend([event] * order.copies)
        if len(held) < order.hold * order.copies:
            await asyncio.sleep(order.hold_seconds)
        batch = held[::-1] if order.hold > 1 else held[:]
        held.clear()
        for one in batch:
            # One after the other, or the network would shuffle them once more.
            if not await self._deliver(one):
                self._start(self._retry(one))

    async def _retry(self, event: _Event) -> None:
        for pause in RETRIES:
            await asyncio.sleep(pause)
            if await self._deliver(event):
                return

    async def _deliver(self, event: _Event) -> bool:
        assert self._client is not None
        assert event.account.webhook_url is not None
        timestamp = math.floor(self._clock.now())
        headers = {
            "content-type": "application/json",
            "webhook-id": event.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(event.account.webhook_secret, event.id, timestamp, event.body),
        }
        try:
            response = await self._client.post(event.account.webhook_url, content=event.body, headers=headers)
            status = response.status_code
        except httpx.HTTPError:
            status = None
        self._ledger.write(
            WebhookSent(event.id, self._clock.now(), event.account.name, event.type, event.payment.id, status)
        )
        return _accepted(status)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of a delivery: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.

    Raises:
        SettingsError: the secret is not `whsec_` and base64.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise SettingsError("a webhook secret is whsec_ followed by base64") from error
    signed = b".".join((id.encode(), str(timestamp).encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _accepted(status: int | None) -> bool:
    return status is not None and 200 <= status < 300
