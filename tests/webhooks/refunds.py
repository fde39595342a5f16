"""Refunds: facts that come after the end of a call."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx
from fix_webhooks import Hooks

from idem.outbox.domain.contract import EventRule
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says
from idem.outbox.values import json_pointer

P = json_pointer.parse


REFUNDED = Rule(
    Says.LATER_FACT,
    body=(Condition(P("/status"), ("refunded",)),),
    places=RulePlaces(reference=P("/id"), status=P("/status"), fields={"refunded": P("/amount")}),
)


async def knowing_refunds(hooks: Hooks, *, fetch: bool) -> Hooks:
    """The contract knows refunds from now on."""
    keyed = hooks.spine.provider("keyed")
    contract = replace(keyed.contract, event_rule=EventRule(fetch=fetch))
    await hooks.change(outcome=(REFUNDED, *keyed.outcome), contract=contract)
    return hooks


async def made(hooks: Hooks, key: str) -> str:
    """A payment under this key that is made behind our back; its id."""
    async with httpx.AsyncClient(verify=False) as client:
        headers = {"idempotency-key": key, "authorization": "Bearer keyed-token"}
        url = f"{hooks.spine.bank.url}/payments"
        answer = await client.post(url, json={"amount": 100, "currency": "eur"}, headers=headers)
    shown = answer.json()
    return str(shown.get("id") or shown["error"]["payment"]["id"])


async def again(hooks: Hooks) -> None:
    """Whatever waits is tried now."""
    await hooks.spine.execute("UPDATE idem.webhook_events SET retry_at = now() WHERE retry_at IS NOT NULL")
    await hooks.spine.reconcile()


async def told(hooks: Hooks, intent: UUID) -> list[tuple[str, dict[str, Any]]]:
    rows = await hooks.spine.all(
        "SELECT type, payload FROM idem.events WHERE aggregateid = %(i)s ORDER BY number", i=intent
    )
    return [(row["type"], row["payload"]) for row in rows]
