"""Queues of many tenants, made past the triggers in one statement each, and claims of them as a worker makes them."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from fix_spine import Spine
from fix_sql import forced
from psycopg import AsyncConnection

from idem.outbox.domain.lane_scopes import LaneScope, lane_scopes
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.claim import Claim
from idem.outbox.worker.fairness import TenantRound
from idem.outbox.worker.queue_position import QueuePosition

PLANT = Path(__file__).with_name("queues_plant.sql").read_text()


def plant(
    url: str, rows: int, *, tenant: str | None = None, due_in: float = -3600, status: str = "pending", origin: str = "o"
) -> None:
    """`rows` rows of one tenant, or of a tenant each, a millisecond apart, the first due in so many seconds."""
    forced(url, PLANT, ({"rows": rows, "tenant": tenant, "due_in": due_in, "status": status, "origin": origin}))


def lane(spine: Spine) -> LaneScope:
    """The lane of `pay.keyed`; what is planted for it needs `origin=spine.bank.url`."""
    return lane_scopes(spine.catalogue)["keyed", "keyed"][0]


async def grab(
    connection: AsyncConnection[Any], name: LaneScope, limit: int, turns: TenantRound | None = None
) -> list[Claim]:
    """One claim, from the head of the queue: what is planted is older than the place of the claim before."""
    if turns is not None:
        turns.position = QueuePosition()
    return await claims.claim(
        connection, name, token=uuid4(), holder="test", lease=60, limit=limit, now=clock.boottime(), tenants=turns
    )


async def tenants(connection: AsyncConnection[Any], rows: list[Claim]) -> list[str]:
    """Whose rows these are."""
    found = await connection.execute(
        "SELECT tenant_id FROM idem.outbox WHERE id = ANY (%s) ORDER BY array_position(%s::uuid[], id)",
        [ids(rows), ids(rows)],
    )
    return [tenant for (tenant,) in await found.fetchall()]


def ids(rows: list[Claim]) -> list[UUID]:
    """Their ids."""
    return [claimed.row.id for claimed in rows]
