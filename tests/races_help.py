"""A claim whose worker never comes back."""

from uuid import uuid4

from fix_spine import Spine

from idem.outbox.domain.lane_names import lane_names
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.claim import Claim


async def claim_one(spine: Spine, kind: str, lease: float = 30) -> Claim:
    """Claim one row as a worker would, and do nothing with it."""
    name, _ = lane_names(spine.catalogue)[kind, kind]
    async with spine.database.connection() as connection:
        (row,) = await claims.claim(
            connection, name, token=uuid4(), holder="test", lease=lease, limit=1, now=clock.boottime()
        )
    return row
