"""Rows that wait to be rendered, locked for whoever renders them: `idem.outbox.rendering`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from idem.outbox import generations
from idem.outbox.catalogue import Catalogue
from idem.outbox.change import Row
from idem.outbox.database import records
from idem.outbox.generations import Renewal
from idem.outbox.rows import read_locked
from idem.outbox.terms import Terms


@dataclass(frozen=True, slots=True)
class Unfrozen:
    """A locked row that waits to be rendered; with `renewal`, under a new provider key, because its own is burned."""

    row: Row
    terms: Terms
    params: Any
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


# The order is the index's; the rows of operations that are not known here are passed over in it.
PICK = """
SELECT o.id, n.params
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.status = 'unfrozen'
   AND o.available_at <= statement_timestamp() AND o.start_before > statement_timestamp()
   AND (NOT o.key_burned OR coalesce(o.quiet_after <= statement_timestamp(), true))
   AND (o.operation, o.provider, o.account, o.origin) IN (
           SELECT * FROM unnest(%(operations)s::text[], %(providers)s::text[], %(accounts)s::text[],
                                %(origins)s::text[]))
   AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id LIMIT 1) IS NULL
   AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)
 ORDER BY o.available_at
 LIMIT %(limit)s
   FOR UPDATE OF o SKIP LOCKED
"""


async def pick(
    connection: AsyncConnection[Any], catalogue: Catalogue, sources: Sequence[Source], *, limit: int
) -> list[Unfrozen]:
    """Lock up to `limit` rows that wait to be rendered, the longest waiting first.

    One whose key is burned is passed over while anything sent under it may still act.
    """
    cursor = records(connection)
    await cursor.execute(PICK, {**_columns(sources), "environment": catalogue.environment, "limit": limit})
    params = {record.id: record.params for record in await cursor.fetchall()}
    rows = [found.row for found in await read_locked(connection, list(params))]
    return [
        Unfrozen(
            row,
            catalogue.require(row.operation),
            params[row.id],
            await generations.following(connection, row) if row.key_burned else None,
        )
        for row in rows
    ]
