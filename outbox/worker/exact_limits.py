"""Lanes whose limit is exact: who claims in one does so in turn, and reads the requests in a second statement."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import REFUSED, DatabaseAway
from idem.outbox.domain.lane_scopes import LaneScope


def takes_turns(lane: LaneScope) -> bool:
    """Whether all who claim in this lane do so one after the other, so that its limit is never exceeded.

    The lane is locked inside the statement that claims: a process that is frozen holds no turn. That
    statement returns few bytes for the same reason: the server can send them all, also to a process that does not read.
    """
    return lane.exact and lane.concurrency is not None


FROZEN = """
SELECT o.id, r.headers, r.body
  FROM idem.outbox o JOIN idem.requests r ON r.outbox_id = ANY (ARRAY[o.id]) AND r.generation = o.generation
 WHERE o.id = ANY (%(ids)s) AND CASE WHEN o.claim_token = %(token)s THEN true END
"""


async def frozen(connection: AsyncConnection[Any], token: UUID, rows: Sequence[UUID]) -> dict[UUID, tuple[Any, bytes]]:
    """Headers and body of rows that were claimed under this token just now; a row that is settled by now is left out.

    Raises DatabaseAway: the claim counts as lost then.
    """
    if not rows:
        return {}
    try:
        found = await (await connection.execute(FROZEN, {"ids": list(rows), "token": token})).fetchall()
    except REFUSED as error:
        raise DatabaseAway(str(error)) from error
    return {row: (headers, bytes(body)) for row, headers, body in found}


async def with_requests(connection: AsyncConnection[Any], token: UUID, records: Sequence[Any]) -> list[Any]:
    """Records of a claim with the headers and bodies of their requests; one that is settled by now is left out.

    A record without a request stays as it is. Raises DatabaseAway.
    """
    found = await frozen(connection, token, [each.id for each in records if each.method is not None])
    return [
        each if each.method is None else each._replace(headers=found[each.id][0], body=found[each.id][1])
        for each in records
        if each.method is None or each.id in found
    ]
