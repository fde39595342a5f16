"""Rows that wait to be rendered, under the lock of the worker that renders them (`idem.outbox.worker.freezing`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database.pool import is_true, records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.terms import Terms
from idem.outbox.settle import key_rotation
from idem.outbox.settle.doubted_rows import C_IS_LISTED
from idem.outbox.settle.key_rotation import Renewal
from idem.outbox.settle.locked_rows import read_locked
from idem.outbox.settle.step_columns import CALL
from idem.outbox.worker.fairness import LAST_SERVED, WIDTH, round_of_tenants


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
    """Where rows of a call are rendered for: one of another account or origin is left to who knows it."""

    call: str
    provider: str
    account: str
    origin: str


WAITS = f"""
SELECT EXISTS (
    SELECT FROM idem.outbox c
     WHERE c.status = 'unfrozen' AND c.provider <> 'local'
       AND c.available_at <= statement_timestamp() AND c.start_before > statement_timestamp()
       AND ({CALL}, c.provider, c.account, c.origin) IN (
               SELECT * FROM unnest(%(calls)s::text[], %(providers)s::text[], %(accounts)s::text[],
                                    %(origins)s::text[])))
"""  # noqa: S608


async def waits(connection: AsyncConnection[Any], sources: Sequence[Source]) -> bool:
    """Whether there may be anything to render: asked without a transaction, because mostly there is nothing."""
    return await is_true(connection, WAITS, source_columns(sources))


def source_columns(sources: Sequence[Source]) -> dict[str, list[str]]:
    """The parameters of these sources."""
    return {
        "calls": [source.call for source in sources],
        "providers": [source.provider for source in sources],
        "accounts": [source.account for source in sources],
        "origins": [source.origin for source in sources],
    }


RENDERABLE = f"""
                  c.provider <> 'local'
              AND c.available_at <= statement_timestamp() AND (c.start_before > statement_timestamp()) IS TRUE
              AND (NOT c.key_burned OR coalesce(c.quiet_after <= statement_timestamp(), true))
              AND ({CALL}, c.provider, c.account, c.origin) IN (
                      SELECT * FROM unnest(%(calls)s::text[], %(providers)s::text[], %(accounts)s::text[],
                                           %(origins)s::text[]))
              AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = c.id LIMIT 1) IS NULL
              AND NOT {C_IS_LISTED}
              AND EXISTS (SELECT FROM idem.installation i WHERE i.environment = %(environment)s)"""  # noqa: S608

# In the order of the index: rows of operations that are not known here are passed over in it.
_ROUND = round_of_tenants(
    "unfrozen",
    lane=" AND o.provider <> 'local'",
    room="%(limit)s::integer",
    claimable=RENDERABLE,
    columns="c.id, c.intent_id",
    order="c.available_at",
    rest="%(limit)s::integer - (SELECT count(*) FROM in_turn)",
)
PICK = f"""
WITH RECURSIVE {_ROUND}
SELECT {LAST_SERVED},
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
    await cursor.execute(PICK, {**source_columns(sources), **given}, prepare=True)
    found = await cursor.fetchall()
    params = {record.id: record.params for record in found if record.id is not None}
    rows = [found.row for found in await read_locked(connection, list(params))]
    return [
        Unfrozen(
            row,
            catalogue.require(row.operation, row.step_name),
            params[row.id],
            await key_rotation.following(connection, row) if row.key_burned else None,
        )
        for row in rows
    ], found[0].after
