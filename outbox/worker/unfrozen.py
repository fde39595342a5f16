"""Rows that wait to be rendered, locked for whoever renders them: `idem.outbox.worker.freezing`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.terms import Terms
from idem.outbox.settle import key_rotation
from idem.outbox.settle.doubted_rows import C_IS_LISTED
from idem.outbox.settle.key_rotation import Renewal
from idem.outbox.settle.locked_rows import read_locked
from idem.outbox.worker.fairness import WIDTH


@dataclass(frozen=True, slots=True)
class Unfrozen:
    """A locked row that waits to be rendered; with `renewal`, under a new provider key, because its own is burned.

    `written`: the params as JSON text, which may have a megabyte: the loop does not parse it.
    """

    row: OutboxRow
    terms: Terms
    written: str
    renewal: Renewal | None = None

    @property
    def provider_key(self) -> str:
        return self.row.provider_key if self.renewal is None else str(self.renewal.key)


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows of an operation are rendered for: one of another account or origin is left to who knows it."""

    operation: str
    provider: str
    account: str
    origin: str


WAITS = """
SELECT EXISTS (
    SELECT FROM idem.outbox o
     WHERE o.status = 'unfrozen'
       AND o.available_at <= statement_timestamp() AND o.start_before > statement_timestamp()
       AND (o.operation, o.provider, o.account, o.origin) IN (
               SELECT * FROM unnest(%(operations)s::text[], %(providers)s::text[], %(accounts)s::text[],
                                    %(origins)s::text[])))
"""


async def waits(connection: AsyncConnection[Any], sources: Sequence[Source]) -> bool:
    """Whether there may be anything to render: asked without a transaction, because mostly there is nothing."""
    record = await (await connection.execute(WAITS, _columns(sources))).fetchone()
    return bool(record and record[0])


def _columns(sources: Sequence[Source]) -> dict[str, list[str]]:
    return {
        "operations": [source.operation for source in sources],
        "providers": [source.provider for source in sources],
        "accounts": [source.account for source in sources],
        "origins": [source.origin for source in sources],
    }


RENDERABLE = f"""
                  c.available_at <= statement_timestamp() AND (c.start_before > statement_timestamp()) IS TRUE
              AND (NOT c.key_burned OR coalesce(c.quiet_after <= statement_timestamp(), true))
              AND (c.operation, c.provider, c.account, c.origin) IN (
                      SELECT * FROM unnest(%(operations)s::text[], %(providers)s::text[], %(accounts)s::text[],
                                           %(origins)s::text[]))
              AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id LIMIT 1) IS NULL
              AND NOT {C_IS_LISTED}
              AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)"""  # noqa: S608

# `visited` goes from tenant to tenant as the claim does (`outbox.claim`), in a ring that begins after %(after)s, until
# it has as many due ones as rows may be taken. Each gets its part of them; what they do not use goes to the rows that
# have waited longest, in the order of the index: rows of operations that are not known here are passed over in it.
PICK = f"""
WITH RECURSIVE visited (tenant_id, due, found, number, wrapped) AS (
    SELECT %(after)s::text COLLATE "C", false, 0, 0, false
    UNION ALL
    SELECT t.tenant_id, t.due, v.found + t.due::integer, v.number + 1, t.wrapped
      FROM visited v CROSS JOIN LATERAL (
           (SELECT o.tenant_id, o.available_at <= statement_timestamp() AS due, v.wrapped FROM idem.outbox o
             WHERE o.status || '' = 'unfrozen' AND o.tenant_id > v.tenant_id
             ORDER BY o.tenant_id, o.available_at, o.id LIMIT 1)
           UNION ALL
           (SELECT o.tenant_id, o.available_at <= statement_timestamp(), true FROM idem.outbox o
             WHERE o.status || '' = 'unfrozen' AND o.tenant_id <= %(after)s AND NOT v.wrapped
             ORDER BY o.tenant_id, o.available_at, o.id LIMIT 1)
           LIMIT 1) t
     WHERE v.number < %(turns)s::integer AND v.found < %(limit)s::integer
       AND NOT (t.wrapped AND t.tenant_id > %(after)s)
), round AS MATERIALIZED (
    SELECT %(limit)s::integer AS room, max(v.found) AS sharers, max(v.number) AS number FROM visited v
), in_turn AS MATERIALIZED (
    SELECT c.id, c.intent_id
      FROM round a CROSS JOIN visited v CROSS JOIN LATERAL (
           SELECT c.id, c.intent_id FROM idem.outbox c
            WHERE {RENDERABLE}
              AND c.status || '' = 'unfrozen'
              AND c.tenant_id >= v.tenant_id AND (c.tenant_id, c.available_at) <= (v.tenant_id, statement_timestamp())
            ORDER BY c.tenant_id, c.available_at, c.id
            LIMIT a.room / a.sharers + (v.found <= a.room %% a.sharers)::integer
              FOR UPDATE OF c SKIP LOCKED) c
     WHERE v.due
), longest AS MATERIALIZED (
    SELECT c.id, c.intent_id FROM idem.outbox c
            WHERE {RENDERABLE}
              AND c.status = 'unfrozen'
              AND c.id <> ALL (ARRAY(SELECT id FROM in_turn))
            ORDER BY c.available_at
            LIMIT %(limit)s::integer - (SELECT count(*) FROM in_turn)
              FOR UPDATE OF c SKIP LOCKED
)
SELECT (SELECT v.tenant_id FROM visited v
         WHERE CASE WHEN a.number < %(turns)s::integer AND a.sharers > 0 AND a.room %% nullif(a.sharers, 0) > 0
                    THEN v.due AND v.found = a.room %% a.sharers ELSE v.number = a.number END) AS after,
       c.id, c.params
  FROM round a LEFT JOIN (
       SELECT c.id, (SELECT n.params::text FROM idem.intents n WHERE n.id = c.intent_id) AS params
         FROM (SELECT id, intent_id FROM in_turn UNION ALL SELECT id, intent_id FROM longest) c) c ON true
"""  # noqa: S608


async def pick(
    connection: AsyncConnection[Any], catalogue: Catalogue, sources: Sequence[Source], *, after: str, limit: int
) -> tuple[list[Unfrozen], str]:
    """Lock up to `limit` rows that wait to be rendered: an equal part for each tenant that has some, and in it the
    longest waiting first. `after`: the tenant that had the last turn; the second value is the one that has it now.

    One whose key is burned is passed over while anything sent under it may still act.
    """
    cursor = records(connection)
    given = {"environment": catalogue.environment, "after": after, "turns": WIDTH, "limit": limit}
    await cursor.execute(PICK, {**_columns(sources), **given}, prepare=True)
    found = await cursor.fetchall()
    params = {record.id: record.params for record in found if record.id is not None}
    rows = [found.row for found in await read_locked(connection, list(params))]
    return [
        Unfrozen(
            row,
            catalogue.require(row.operation),
            params[row.id],
            await key_rotation.following(connection, row) if row.key_burned else None,
        )
        for row in rows
    ], found[0].after
