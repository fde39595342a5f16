"""Finds what was claimed by a statement whose answer was lost."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import AWAY, REFUSED, Database, is_true, records
from idem.outbox.database.pooler import server_of
from idem.outbox.domain.outbox_row import OutboxRow, claimed_row
from idem.outbox.settle.step_columns import step_columns

OWN_CLAIMS = f"""
SELECT o.id, o.intent_id, o.operation, o.attempt, o.provider_key::text AS provider_key, o.step, o.sweeps, o.failures,
       o.inline, {step_columns("o")},
       extract(epoch FROM o.start_before - statement_timestamp())::float8 AS start_left
  FROM idem.outbox o WHERE o.provider = %(provider)s AND o.account = %(account)s AND o.claim_token = %(token)s
"""  # noqa: S608


async def recover_lost_claim(
    database: Database, provider: str, account: str, token: UUID, *, backend: int | None, patience: float
) -> Sequence[OutboxRow]:
    """The rows of a claim whose answer was lost: nothing of them was sent, so they can be given back.

    The lost statement may still commit: the search is repeated until its backend is gone, or until `patience`
    seconds (the statement timeout) have passed.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            async with database.connection() as connection:
                gone = backend is not None and not await _lives(connection, backend)
                cursor = records(connection)
                wanted = {"token": token, "provider": provider, "account": account}
                own = await (await cursor.execute(OWN_CLAIMS, wanted)).fetchall()
        except (*AWAY, *REFUSED):
            gone, own = False, []
        if own or gone or loop.time() > until:
            return [claimed_row(r, token=token, provider=provider, account=account) for r in own]
        await asyncio.sleep(0.5)


BACKEND_LIVES = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %(pid)s)"


async def _lives(connection: AsyncConnection[Any], backend: int) -> bool:
    if server_of(connection) == backend:
        return False
    return await is_true(connection, BACKEND_LIVES, {"pid": backend})
