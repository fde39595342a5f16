"""A lane with limits, and the rows that wait for it."""

from dataclasses import replace
from uuid import uuid4

from fix_spine import KEYED, Spine

from idem.outbox.domain.lane_names import LaneName, lane_names
from idem.outbox.domain.limits import Limits
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.claim import Claim
from idem.reconciler import due
from idem.reconciler.lookup_claim import LookupClaim


def limited(spine: Spine, limits: Limits) -> LaneName:
    known = spine.catalogue.providers["keyed"]
    other = replace(known, contract=replace(KEYED, limits=limits))  # type: ignore[type-var]
    spine.catalogue = replace(spine.catalogue, providers={**spine.catalogue.providers, "keyed": other})
    return lane_names(spine.catalogue)["keyed", "keyed"][0]


async def claim(spine: Spine, lane: LaneName, limit: int = 100, lease: float = 30) -> list[Claim]:
    async with spine.database.connection() as connection:
        return await claims.claim(
            connection, lane, token=uuid4(), holder="w", lease=lease, limit=limit, now=clock.boottime()
        )


async def take(spine: Spine, lane: LaneName, limit: int = 100) -> list[LookupClaim]:
    contract = spine.catalogue.providers["keyed"].contract
    async with spine.database.connection() as connection:
        return await due.claim_due(
            connection, lane, contract, token=uuid4(), holder="r", lease=30, limit=limit, now=clock.boottime()
        )


async def backlog(spine: Spine, *, unknown: int, pending: int) -> None:
    for n in range(unknown):
        spine.accepted(f"u{n}")
    if unknown:
        await spine.work(faults=["drop_before_acting"] * unknown)
        await spine.advance(10)
    for n in range(pending):
        spine.accepted(f"p{n}")
