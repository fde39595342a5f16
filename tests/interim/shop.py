"""A shop whose bank asks some customers to act (3-D Secure): the same payment as two operations, one of each kind."""

import json
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import httpx
from fix_accept import Acceptor
from fix_api import Client
from fix_spine import P, Spine, catalogue, operation
from fix_webhooks import Hooks, event, with_events

from idem import Answer
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.operation import FinalOutcome
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says, statuses
from idem.outcomes import Pending

PLACES = RulePlaces(reference=P("/id"), status=P("/status"), fields={"next": P("/next_action")})
OUTCOME = (
    Rule(Says.FINAL, body=(Condition(P("/status"), ("succeeded",)),), places=PLACES),
    Rule(Says.ANSWER, body=(Condition(P("/status"), ("requires_action",)),), places=PLACES),
    Rule(Says.PENDING, body=(Condition(P("/status"), ("processing",)),), places=PLACES),
    Rule(Says.REFUSED, status=statuses(["2xx", 402]), body=(Condition(P("/status"), ("declined",)),), places=PLACES),
)
KINDS = ("final", "exists")
REDIRECT = "https://acs.bank.example/challenges/"


def interim(working: Pending) -> Any:
    """Where the customer must go; of what is merely being worked on there is nothing to say."""
    found = working.fields.get("next")
    return {"payment": working.reference, "redirect": found["url"]} if found else None


def answer(outcome: FinalOutcome, intent: str) -> Answer:
    found = outcome.fields.get("next")
    told = {"payment": outcome.reference, "status": outcome.status}
    return Answer(201 if outcome.succeeded else 402, told | ({"redirect": found["url"]} if found else {}))


def acting(known: Catalogue, **changes: Any) -> Catalogue:
    """The catalogue whose bank may ask the customer to act, and which sends events."""
    keyed = known.providers["keyed"]
    assert isinstance(keyed, HttpProvider)
    bank = replace(keyed, outcome=OUTCOME, contract=replace(keyed.contract, answers=True, events_settle=True))
    operations = {
        f"pay.{kind}": operation(f"pay.{kind}", "keyed", completes_when=kind, interim=interim, answer=answer, **changes)
        for kind in KINDS
    }
    return with_events(
        Catalogue(known.environment, {**known.providers, "keyed": bank}, {**known.operations, **operations})
    )


def acting_at(bank_url: str) -> Catalogue:
    return acting(catalogue(bank_url))


def use(spine: Spine, known: Catalogue) -> None:
    """From now on everything of this test works with this catalogue."""
    spine.catalogue, spine.acceptor = known, Acceptor(known.operations, known.providers)


@dataclass
class Shop:
    """Handles of one test: the API as the client sees it, the endpoint of the events, the daemons."""

    spine: Spine
    api: Client
    hooks: Hooks

    async def pay(self, kind: str, key: str = "k1", **options: Any) -> httpx.Response:
        return await self.api.ask(key, path=f"/v1/intents/pay.{kind}", **options)

    async def charge(self, kind: str, fault: str = "requires_action:600", key: str = "k1") -> UUID:
        """A payment that was asked for, and called once, with this from the bank."""
        self.spine.bank.script(None, [fault])
        intent = self.api.intent(await self.pay(kind, key))
        await self.spine.work()
        return intent

    async def shown(self, intent: UUID) -> dict[str, Any]:
        """`GET /v1/intents/{id}`"""
        return dict((await self.api.http.get(f"/v1/intents/{intent}")).json())

    async def says(self, intent: UUID, status: str, id: str = "evt_1", **more: Any) -> str:
        """The bank's event about this payment; what became of it."""
        return await self.hooks.fate(await self.event(intent, status, **more), id)

    async def event(self, intent: UUID, status: str, **more: Any) -> dict[str, Any]:
        (payment,) = self.spine.bank.log.payments()
        return event(await self.hooks.key(intent), status, more.pop("reference", payment.id), **more)

    async def poll(self) -> None:
        """The bank's clock moves past every challenge, and ours to the next look."""
        self.spine.bank.shift_clock(700)
        await self.spine.reconcile(after=120)

    async def stored(self, intent: UUID) -> dict[str, Any]:
        return await self.spine.one("SELECT * FROM idem.intents WHERE id = %(i)s", i=intent)

    async def events(self, intent: UUID) -> list[tuple[str, str | None, bool]]:
        """Type, outcome and whether it was open, in order."""
        rows = await self.spine.all(
            "SELECT type, payload FROM idem.events WHERE aggregateid = %(i)s ORDER BY number", i=intent
        )
        return [(row["type"], row["payload"].get("outcome"), row["payload"].get("interim", False)) for row in rows]


def redirect(payment: str) -> str:
    return REDIRECT + payment


def body(response: httpx.Response) -> Any:
    return json.loads(response.content)
