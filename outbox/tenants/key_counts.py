"""How many keys a tenant has that have not expired, without counting them for each request.

`idem.tenant_keys` has the count up to the id of one intent. The index of intents counts what was made after it, which
is about a minute's worth. The sweeper subtracts what it expires, moves the id forward, and counts everything anew from
time to time. So the count follows the tables, even if a process dies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

# No more of them than decide about the limit; in their order, so that a LIMIT does not tempt the planner to read all.
ACTIVE = """
SELECT k.tenant_id, k.active + (
           SELECT count(*) FROM (
               SELECT FROM idem.intents i
                WHERE i.tenant_id = k.tenant_id AND i.id > k.counted_to
                ORDER BY i.id
                LIMIT greatest(0, w.most - k.active + 1)) AS later) AS active,
       k.requested_at < statement_timestamp() - interval '1 hour' AS forgotten
  FROM unnest(%(tenants)s::text[], %(limits)s::bigint[]) AS w (tenant_id, most)
  JOIN idem.tenant_keys k ON k.tenant_id = ANY (ARRAY[w.tenant_id])
"""


@dataclass(frozen=True, slots=True)
class Active:
    """Keys that have not expired; about `limit` of them at most are counted."""

    keys: int
    limit: int


async def active(connection: AsyncConnection[Any], limits: Mapping[str, int]) -> dict[str, Active]:
    """The active keys of the tenants that have a limit. Of one that is asked about for the first time only those that
    are made from now on are known, until the sweeper has counted the others."""
    tenants = sorted(limits)
    values = {"tenants": tenants, "limits": [limits[tenant] for tenant in tenants]}
    found = await (await connection.execute(ACTIVE, values)).fetchall()
    counted = {tenant: Active(max(0, keys), limits[tenant]) for tenant, keys, _ in found}
    remembered = {tenant for tenant, _, forgotten in found if not forgotten}
    if wanted := [tenant for tenant in tenants if tenant not in remembered]:
        await _want(connection, wanted)
    return counted


WANT = """
WITH again AS (
    UPDATE idem.tenant_keys k SET requested_at = statement_timestamp()
     WHERE k.tenant_id = ANY (ARRAY(SELECT o.tenant_id FROM idem.tenant_keys o
                                     WHERE o.tenant_id = ANY (%(tenants)s)
                                     ORDER BY o.tenant_id FOR UPDATE SKIP LOCKED))
)
INSERT INTO idem.tenant_keys (tenant_id)
SELECT w.tenant_id FROM unnest(%(tenants)s::text[]) AS w (tenant_id) ORDER BY w.tenant_id COLLATE "C"
    ON CONFLICT DO NOTHING
"""


async def _want(connection: AsyncConnection[Any], tenants: list[str]) -> None:
    await connection.execute(WANT, {"tenants": tenants})
