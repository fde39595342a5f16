"""The spine with a bank that can be listed, and a ledger check over it as the command makes it."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import httpx
from fix_spine import OUTCOME, PLACES, Spine
from fix_waiting import stopping

from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.listing import Listing
from idem.outbox.providers.outcome_rules import Condition, Rule, Says, statuses
from idem.outbox.providers.pages import Paging
from idem.outbox.values import json_pointer
from idem.reconciler.daemon import Reconciler
from idem.reconciler.ledger.check import check
from idem.reconciler.ledger.report import Checked, LaneReport
from idem.reconciler.ledger.window import Since

P = json_pointer.parse
TAG = DeploymentTag(at="/metadata/idem_deployment")
HOUR = Since(ago=3600)
CANCELED = Rule(Says.REFUSED, statuses("2xx"), (Condition(P("/status"), ("canceled",)),), places=PLACES)


def listing(limit: int, **changes: Any) -> Listing:
    """The bank's list of payments, `limit` a page."""
    path = f"/payments?limit={limit}&since={{idem.since}}&until={{idem.until}}"
    base = Listing(
        path=path,
        items=P("/data"),
        reference=P("/id"),
        key=P("/idempotency_key"),
        created=P("/created"),
        page=Paging(style="after_id", parameter="after", more=P("/has_more"), most=1000),
    )
    return base.model_copy(update=changes)


def listed(
    spine: Spine, *, limit: int = 100, horizon: float = 0.0, tag: DeploymentTag | None = TAG, **contract: Any
) -> None:
    """Let the bank behind `pay.keyed` be listed; the other provider is one that cannot be."""
    known = spine.provider("keyed").contract
    lookup = replace(known.lookup, horizon=horizon)
    rules = replace(known, listed=True, deployment="test", lookup=lookup, **contract)
    spine.change("keyed", contract=rules, ledger=listing(limit), tag=tag, outcome=(*OUTCOME, CANCELED))


def reconciler(spine: Spine) -> AbstractAsyncContextManager[Reconciler]:
    """One that is closed at the end."""
    return stopping(Reconciler(spine.database, spine.catalogue, ReconcilerSettings(lease=30), slots=4, margin=1))


async def walk(spine: Spine, since: Since = HOUR, *, dry_run: bool = False) -> Checked:
    """A ledger check of every lane."""
    async with reconciler(spine) as one:
        lanes = [(lane.name, lane.lane) for lane in one.lanes]
        return await check(spine.database, spine.catalogue, lanes, since, dry_run=dry_run)


async def keyed(spine: Spine, since: Since = HOUR, *, dry_run: bool = False) -> LaneReport:
    """What it says of the lane that can be listed."""
    return next(lane for lane in (await walk(spine, since, dry_run=dry_run)).lanes if lane.provider == "keyed")


def counts(report: LaneReport) -> dict[str, int]:
    """What was counted at all."""
    return {kind: number for kind, number in report.counts.items() if number}


async def post(spine: Spine, *, key: str | None = None, amount: int = 77, **more: Any) -> str:
    """A payment that somebody makes at the bank past idem; its id."""
    headers = {"authorization": "Bearer keyed-token", "idempotency-key": key or str(uuid4())}
    async with httpx.AsyncClient(base_url=spine.bank.url, headers=headers, verify=False) as client:
        answer = await client.post("/payments", json={"amount": amount, "currency": "eur", **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def provider_key(spine: Spine, intent: UUID) -> str:
    row = await spine.one("SELECT provider_key::text AS key FROM idem.requests WHERE intent_id = %(i)s", i=intent)
    return str(row["key"])


async def entries(spine: Spine) -> list[dict[str, Any]]:
    """Every dead letter of a ledger check."""
    return await spine.all("SELECT * FROM idem.dead_letters WHERE reason = 'discrepancy' ORDER BY id")
