"""Refunds: facts that come after the end of a call."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from fix_webhooks import Hooks, serving

from idem.outbox.domain.contract import EventRule
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says
from idem.outbox.values import json_pointer

P = json_pointer.parse


REFUNDED = Rule(
    Says.LATER_FACT,
    body=(Condition(P("/status"), ("refunded",)),),
    places=RulePlaces(reference=P("/id"), status=P("/status"), fields={"refunded": P("/amount")}),
)


@contextlib.asynccontextmanager
async def knowing_refunds(hooks: Hooks, *, fetch: bool) -> AsyncIterator[None]:
    keyed = hooks.spine.provider("keyed")
    contract = replace(keyed.contract, event=EventRule(fetch=fetch))
    hooks.spine.change("keyed", outcome=(REFUNDED, *keyed.outcome), contract=contract)
    async with serving(hooks.spine.url, hooks.spine.catalogue) as url:
        hooks.http.base_url = url
        yield


async def again(hooks: Hooks) -> None:
    """Whatever waits is tried now."""
    await hooks.spine.execute("UPDATE idem.webhook_events SET retry_at = now() WHERE retry_at IS NOT NULL")
    await hooks.spine.reconcile()


async def told(hooks: Hooks, intent: UUID) -> list[tuple[str, dict[str, Any]]]:
    rows = await hooks.spine.all(
        "SELECT type, payload FROM idem.events WHERE aggregateid = %(i)s ORDER BY number", i=intent
    )
    return [(row["type"], row["payload"]) for row in rows]
