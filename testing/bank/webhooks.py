"""Sends events; twice, late or out of order if configured."""

import asyncio
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx

from idem.outbox.calls.tls_settings import ssl_context
from idem.testing.bank.answers import encoded
from idem.testing.bank.records import Changed, Payment, Record, Voided, WebhookSent
from idem.testing.bank.settings import BankAccount, BankApi, WebhookOrder
from idem.testing.bank.signatures import headers
from idem.testing.bank.state import BankState

# Seconds before each further try of a delivery that got no 2xx.
RETRIES = (0.5, 2.0, 8.0, 30.0)


@dataclass(frozen=True)
class _Event:
    """`body` is called when the event is due; it returns None if the event was voided."""

    id: str
    type: str
    at: float
    account: str
    payment: str
    body: Callable[[], bytes | None]
    number: int = 0


class Webhooks:
    """Sends the events of payments to the accounts that have a `webhook_url`. `stripe` gives the event of a change of a
    Stripe-like account."""

    def __init__(self, state: BankState, stripe: Callable[[BankAccount, Changed], bytes | None]) -> None:
        self._state = state
        self._stripe = stripe
        self._open = False
        self._numbers = itertools.count(1)
        self._client: httpx.AsyncClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: defaultdict[str, list[tuple[_Event, bytes]]] = defaultdict(list)

    def send_to(self, name: str, url: str) -> None:
        """Send the events of an account to this URL from now on, including earlier events if it had no URL.

        Raises:
            LookupError: there is no such account.
        """
        accounts = self._state.settings.accounts
        account = self._state.account(name)
        if account is None:
            raise LookupError(f"the bank has no account {name!r}; it has {', '.join(each.name for each in accounts)}")
        changed = tuple(replace(each, webhook_url=url) if each is account else each for each in accounts)
        self._state.settings = replace(self._state.settings, accounts=changed)
        if account.webhook_url is None:
            self._catch_up([name])

    def start(self) -> None:
        """Start, with the events that an earlier run of the bank has not delivered."""
        self._open = True
        self._catch_up([account.name for account in self._state.settings.accounts if account.webhook_url])

    async def stop(self) -> None:
        """Stop; if the bank has a log, the next start delivers the remaining events."""
        self._open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def announce(self, record: Record, order: WebhookOrder | None = None, done: Collection[str] = ()) -> None:
        """Send the events of a payment, of its cancel, or of a change of a Stripe-like account, each when it is due.
        `done` are the ids of events that need no sending any more."""
        account = self._state.account(record.account) if isinstance(record, Payment | Voided | Changed) else None
        if account is None or account.webhook_url is None or not self._open:
            return
        for event in self._events(account, record):
            if event.id not in done:
                numbered = replace(event, number=next(self._numbers))
                self._start(self._send(numbered, order or account.webhook))

    def _events(self, account: BankAccount, record: Record) -> Iterator[_Event]:
        match record, account.api:
            case Payment(), BankApi.OWN:
                yield self._event(account, record, record.status, record.at)
                if record.becomes is not None and record.settles_at is not None:
                    yield self._event(account, record, record.becomes, record.settles_at)
            case Voided(), _ if payment := self._state.book.get(account, record.payment or ""):
                yield self._event(account, payment, "canceled", record.at)
            case Changed(type=str() as kind), BankApi.STRIPE:
                body = partial(self._stripe, account, record)
                yield _Event(record.id, kind, record.at, record.account, record.object, body)

    def _catch_up(self, names: list[str]) -> None:
        if names and self._client is None:
            # Loading the certificates takes longer than some tests run.
            self._client = httpx.AsyncClient(timeout=10, trust_env=False, verify=ssl_context())
        done = {r.id for r in self._state.ledger.records if isinstance(r, WebhookSent) and _accepted(r.status)}
        for record in list(self._state.ledger.records):
            if getattr(record, "account", None) in names:
                self.announce(record, None, done)

    def _event(self, account: BankAccount, payment: Payment, status: str, at: float) -> _Event:
        kind = f"payment.{status}"

        def body() -> bytes | None:
            voided = self._state.book.voided(payment)
            if voided is not None and at > voided.at:
                return None
            shown = self._state.book.shown(account, payment, status)
            if account.shape is not None:
                shown = account.shape.shown(shown, payment.details)
            moment = datetime.fromtimestamp(at, UTC).isoformat()
            return encoded({"type": kind, "timestamp": moment, "data": shown})

        return _Event(f"evt_{payment.id.removeprefix('pay_')}_{status}", kind, at, account.name, payment.id, body)

    async def _send(self, event: _Event, order: WebhookOrder) -> None:
        await self._state.clock.until(event.at + order.delay)
        body = event.body()
        if body is None:
            return
        held = self._held[event.account]
        held.extend([(event, body)] * order.copies)
        if len(held) < order.hold * order.copies:
            await asyncio.sleep(order.hold_seconds)
        # Events that are due at the same moment wake up in any order.
        batch = sorted(held, key=lambda one: (one[0].at, one[0].number), reverse=order.hold > 1)
        held.clear()
        for one in batch:
            # Deliver one after another, or the network would change the order again.
            if not await self._deliver(*one):
                self._start(self._retry(*one))

    async def _retry(self, event: _Event, body: bytes) -> None:
        for pause in RETRIES:
            await asyncio.sleep(pause)
            if await self._deliver(event, body):
                return

    async def _deliver(self, event: _Event, body: bytes) -> bool:
        account = self._state.account(event.account)
        assert account is not None and account.webhook_url is not None
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=10, trust_env=False, verify=ssl_context())
        # By the real clock, not the bank's: the receiver compares it with its own.
        signed = headers(account, event.id, math.floor(time.time()), body)
        try:
            response = await self._client.post(
                account.webhook_url, content=body, headers={"content-type": "application/json", **signed}
            )
            status = response.status_code
        except httpx.HTTPError:
            status = None
        self._state.ledger.write(
            WebhookSent(event.id, self._state.clock.now(), event.account, event.type, event.payment, status)
        )
        return _accepted(status)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _accepted(status: int | None) -> bool:
    return status is not None and 200 <= status < 300
