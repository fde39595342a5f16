"""The order of intents with one ordering key: who is next, and what brings it to work.

A row is blocked while an open row of the same (tenant, group, key) has a smaller number, or while the key is held
(`idem.is_blocked`). The statement that lets the first row leave promotes the next one. It waits for no lock, so it
does not see a follower whose accept has not committed, and passes over what another session has locked: the sweeper
promotes those (`idem.sweeper.order`). Both can be late and never wrong: who sees a row sees every open row before it,
because its number was taken under the lock of the key.
"""

from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.channel import CHANNEL
from idem.outbox.database.pool import records
from idem.outbox.domain.outbox_row import Source
from idem.outbox.observe import after_commit
from idem.outbox.observe.after_commit import Moved
from idem.outbox.settle.doubted_rows import O_IS_LISTED

PROMOTION = "promoted"
"""The kind of the evidence of a row that was waiting and may be sent now."""

# Who has locked the intent decides about it now: its row is left for the next pass.
_FREE = "(SELECT n.id FROM idem.intents n WHERE n.id = o.intent_id FOR KEY SHARE SKIP LOCKED) IS NOT NULL"

# For the rows of `woken`: locked, and not blocked. What was never rendered, or is to be rendered under a new key, is
# rendered first, and so is what nobody has decided about: it may need an approval. It is due from now on: that it
# waited for others is nobody's delay. (Not `idem.next_status`: the leaving row is still visible in this statement, so
# that function would call the follower blocked.)
_PROMOTE = f"""
    UPDATE idem.outbox o
       SET status = idem.ready_status(o), status_since = statement_timestamp(),
           available_at = greatest(o.available_at, statement_timestamp(),
                                   CASE WHEN o.key_burned THEN o.quiet_after END)
      FROM woken w
     WHERE o.id = ANY (ARRAY[w.id]) AND CASE WHEN o.status = 'waiting' THEN NOT {O_IS_LISTED} END
    RETURNING o.id, o.intent_id, o.tenant_id, o.operation, o.step, o.attempt, o.status, o.provider, o.account,
              o.traceparent, w.source, w.after, w.waited
), noted AS (
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, from_status, to_status, details)
    SELECT p.intent_id, p.id, p.step, p.attempt, p.source, '{PROMOTION}', 'waiting', p.status,
           CASE WHEN p.after IS NULL THEN '{{}}' ELSE jsonb_build_object('after', p.after) END
      FROM promoted p"""  # noqa: S608

# Of the gate's statement: `gone` are the rows that leave, `matched` all that it changes. A statement without a row that
# had a place in an order reads no more than that here.
WAKES = f"""freed AS MATERIALIZED (
    SELECT g.tenant_id, g.ordering_group, g.ordering_key, max(g.source) AS source,
           (array_agg(g.intent_id ORDER BY g.ordering_number DESC))[1] AS after
      FROM gone g WHERE g.ordering_number IS NOT NULL AND NOT g.goes_on
     GROUP BY g.tenant_id, g.ordering_group, g.ordering_key HAVING NOT bool_or(g.holds)
), kept_back AS (
    INSERT INTO idem.order_holds (tenant_id, ordering_group, ordering_key, intent_id, why)
    SELECT g.tenant_id, g.ordering_group, g.ordering_key, g.intent_id, 'refused'
      FROM gone g WHERE g.ordering_number IS NOT NULL AND g.holds
        ON CONFLICT DO NOTHING
), next_ones AS MATERIALIZED (
    SELECT n.id, f.source, f.after
      FROM freed f CROSS JOIN LATERAL (
           SELECT o.id, o.status FROM idem.outbox o
            WHERE o.tenant_id = f.tenant_id AND o.ordering_group = f.ordering_group
              AND o.ordering_key = f.ordering_key AND o.ordering_number IS NOT NULL
              AND o.id <> ALL (ARRAY(SELECT m.id FROM matched m WHERE m.to_status IS NULL))
            ORDER BY o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number LIMIT 1) AS n
     WHERE n.status = 'waiting' AND n.id <> ALL (ARRAY(SELECT m.id FROM matched m))
       AND (SELECT h.intent_id FROM idem.order_holds h
             WHERE h.tenant_id = f.tenant_id AND h.ordering_group = f.ordering_group
               AND h.ordering_key = f.ordering_key) IS NULL
), woken AS MATERIALIZED (
    SELECT o.id, f.source, f.after, extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS waited
      FROM next_ones f JOIN idem.outbox o ON o.id = ANY (ARRAY[f.id])
     WHERE {_FREE} ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
), promoted AS ({_PROMOTE}
)"""  # noqa: S608

# The rows that were promoted, as the gate says what it has written. Workers are woken: what waits for its turn is late
# already.
_PROMOTED = f"""
SELECT p.id, p.tenant_id AS tenant, p.operation, n.idempotency_key AS key, p.intent_id AS intent, p.attempt, p.source,
       '{PROMOTION}' || pg_notify('{CHANNEL}', '')::text AS kind, NULL AS seen, n.state AS from_state,
       n.state AS to_state, 'waiting' AS from_status, p.status AS to_status, p.provider, p.account, p.waited,
       p.traceparent, NULL::text[] AS letters, NULL::uuid AS next_row
  FROM promoted p JOIN idem.intents n ON n.id = ANY (ARRAY[p.intent_id])"""  # noqa: S608
ALSO_PROMOTED = f"UNION ALL {_PROMOTED}"


PROMOTE = f"""
WITH woken AS MATERIALIZED (
    SELECT o.id, %(source)s::text AS source, %(after)s::uuid AS after,
           extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS waited
      FROM idem.outbox o WHERE o.id = ANY (%(ids)s) AND {_FREE} ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
), promoted AS ({_PROMOTE}
)
{_PROMOTED}
"""  # noqa: S608


async def promote(
    connection: AsyncConnection[Any], ids: list[UUID], source: Source, *, after: UUID | None = None
) -> list[UUID]:
    """Promote rows that are not blocked any more; the intents of those that were. What others lock is passed over.

    `after`: the intent that they have waited for.
    """
    if not ids:
        return []
    cursor = records(connection)
    written = await (await cursor.execute(PROMOTE, {"ids": ids, "source": source, "after": after})).fetchall()
    for row in written:
        after_commit.emit(connection, partial(after_commit.moved, moved(row)))
    return [row.intent for row in written]


def moved(written: Any) -> Moved:
    """What is told of a record of the gate's statement, or of a promotion, after the commit."""
    columns = written._asdict() | {"letters": tuple(written.letters or ())}
    del columns["id"], columns["next_row"]
    return Moved(**columns)


def waiting_heads(after: str, while_in: str = "true") -> str:
    """The clause `heads` of a statement WITH RECURSIVE: the first row of each key that waits, in the order of the keys,
    `after` a place and for as long as `f`, the one before, satisfies `while_in`.

    It goes from index row to index row: 100,000 followers of one row are one step.
    """

    def head(place: str) -> str:
        return f"""
        SELECT o.id, o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number
          FROM idem.outbox o
         WHERE o.status || '' = 'waiting' AND (o.tenant_id, o.ordering_group, o.ordering_key) > ({place})
         ORDER BY o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number LIMIT 1"""  # noqa: S608

    return f"""heads AS (
    ({head(after)})
    UNION ALL
    SELECT n.* FROM heads f CROSS JOIN LATERAL ({head("f.tenant_id, f.ordering_group, f.ordering_key")}) AS n
     WHERE {while_in}
)"""  # noqa: S608


WAITING_KEYS = f"""
WITH RECURSIVE {waiting_heads("%(tenant)s, %(group)s, %(key)s")}
SELECT f.id, f.tenant_id, f.ordering_group, f.ordering_key,
       idem.is_blocked(f.tenant_id, f.ordering_group, f.ordering_key, f.ordering_number) AS blocked
  FROM (SELECT * FROM heads LIMIT %(batch)s) AS f
"""  # noqa: S608
KeyPlace: TypeAlias = tuple[str, str, str]
"""Tenant, group and ordering key, in the order of which the keys are walked."""
FIRST_KEY: Final[KeyPlace] = ("", "", "")


async def promote_page(
    connection: AsyncConnection[Any], *, batch: int, after: KeyPlace = FIRST_KEY
) -> tuple[list[UUID], KeyPlace | None]:
    """Promote the first rows of the next `batch` keys that wait, where nothing blocks them; and the last of these keys.
    None: there are no more."""
    tenant, group, key = after
    cursor = records(connection)
    given = {"tenant": tenant, "group": group, "key": key, "batch": batch}
    found = await (await cursor.execute(WAITING_KEYS, given)).fetchall()
    done = await promote(connection, [row.id for row in found if not row.blocked], "sweeper")
    last = found[-1] if len(found) == batch else None
    return done, None if last is None else (last.tenant_id, last.ordering_group, last.ordering_key)


FIRST_OF_KEY = """
SELECT o.id, o.status, idem.is_blocked(o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number) AS blocked
  FROM idem.outbox o
 WHERE o.tenant_id = %(tenant)s AND o.ordering_group = %(group)s AND o.ordering_key = %(key)s
   AND o.ordering_number IS NOT NULL
 ORDER BY o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number LIMIT 1
"""


async def promote_key(
    connection: AsyncConnection[Any], place: KeyPlace, source: Source, *, after: UUID | None = None
) -> list[UUID]:
    """Promote the first row of this key, if it waits and nothing blocks it."""
    tenant, group, key = place
    cursor = records(connection)
    found = await (await cursor.execute(FIRST_OF_KEY, {"tenant": tenant, "group": group, "key": key})).fetchone()
    if found is None or found.status != "waiting" or found.blocked:
        return []
    return await promote(connection, [found.id], source, after=after)


ENTER = "SELECT idem.enter_order(%(batch)s)"


async def enter(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Give rows that came back to work without a place one behind all others of their key; how many."""
    record = await (await connection.execute(ENTER, {"batch": batch})).fetchone()
    return int(record[0]) if record is not None else 0
