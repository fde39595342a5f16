"""Whether there is anything for the passes that are made each second: one statement for all of them, and all lanes."""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.domain.lane_scopes import LaneScope

PROOFS, EVENTS, REDRIVES = "stored proofs", "waiting events", "redrives"

# Each part goes by the index that its pass goes by, and in its order: one row is read, of those that no pass can take
# too. An unknown row that another reconciler asks about counts: its claim may be over before the next poll.
DUE_WORK = """
SELECT w.kind
  FROM (VALUES
       ('stored proofs', (SELECT p.outbox_id FROM idem.proofs p
                           WHERE p.outcome <> 'hint' ORDER BY p.outbox_id LIMIT 1)),
       ('redrives', (SELECT c.id FROM idem.outbox c
                      WHERE c.redrive_at <= statement_timestamp() ORDER BY c.redrive_at, c.id LIMIT 1)),
       ('waiting events', (SELECT e.id FROM idem.webhook_events e
                            WHERE e.retry_at <= statement_timestamp() AND e.fate <> 'hint'
                            ORDER BY e.retry_at LIMIT 1))) AS w (kind, first)
 WHERE w.first IS NOT NULL
 UNION ALL
SELECT 'claim ' || l.provider || '/' || l.account
  FROM unnest(%(providers)s::text[], %(accounts)s::text[]) AS l (provider, account)
 WHERE (SELECT c.id FROM idem.outbox c
         WHERE c.status IN ('unknown', 'awaiting') AND c.provider = l.provider AND c.account = l.account
           AND c.available_at <= statement_timestamp()
         ORDER BY c.provider, c.account, c.available_at, c.id LIMIT 1) IS NOT NULL
 UNION ALL
SELECT 'events ' || l.provider || '/' || l.account
  FROM unnest(%(providers)s::text[], %(accounts)s::text[]) AS l (provider, account)
 WHERE (SELECT e.id FROM idem.webhook_events e
         WHERE e.fate = 'hint' AND e.provider = l.provider AND e.account = l.account
           AND e.retry_at <= statement_timestamp()
         ORDER BY e.provider, e.account, e.retry_at LIMIT 1) IS NOT NULL
"""


def of_lane(kind: str, lane: LaneScope) -> str:
    """What a kind of work of one lane is called here: `claim` for rows, `events` for hints."""
    return f"{kind} {lane.provider}/{lane.account}"


async def due_work(connection: AsyncConnection[Any], lanes: Iterable[LaneScope]) -> frozenset[str]:
    """The passes that may find something, by their names."""
    names = list(lanes)
    wanted = {"providers": [lane.provider for lane in names], "accounts": [lane.account for lane in names]}
    found = await (await connection.execute(DUE_WORK, wanted)).fetchall()
    return frozenset(kind for (kind,) in found)
