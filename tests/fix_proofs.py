"""What a daemon is told about a row: it takes one row, and one look-up is answered."""

from typing import Any
from uuid import uuid4

from fix_spine import Spine

from idem.outbox.domain.lane_names import lane_names
from idem.outbox.domain.outcomes import Seen
from idem.outbox.settle.rendering import Renderer
from idem.outbox.values import clock
from idem.reconciler import due, lookups, settling
from idem.reconciler.lookup_claim import LookupClaim


async def claim_due_row(spine: Spine, kind: str) -> LookupClaim:
    name, _ = lane_names(spine.catalogue)[kind, kind]
    contract = spine.catalogue.providers[kind].contract
    async with spine.database.connection() as connection:
        (taken,) = await due.claim_due(
            connection, name, contract, token=uuid4(), holder="t", lease=30, limit=1, now=clock.boottime()
        )
    return taken


async def answered(spine: Spine, taken: LookupClaim, look: Any, seen: Seen | None = None) -> str:
    """Settle a take as if the provider had said this."""
    renderer = Renderer()
    found = lookups.Answered("look", look, seen or Seen(200), sent=False)
    became, _ = await settling.settle(
        spine.database, renderer, taken, found, spine.catalogue.require(taken.row.operation)
    )
    return became
