"""A new generation of a row's provider key, for a key that the provider has burned (hazard 10).

The provider keeps a failure under the key for ever, or was told to cancel it: whatever is sent again under it gets the
same answer. A new key removes the only protection against a send of ours that is still under way, so it is made only
when every attempt under the old one is proven not executed and none of them can act any more.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox import keys
from idem.outbox.catalogue import Catalogue
from idem.outbox.change import Row
from idem.outbox.database import records
from idem.outbox.errors import Refusal
from idem.outbox.states import OutboxStatus

WANTED = """
SELECT n.tenant_id, n.idempotency_key, n.params, o.generation, i.secret
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id CROSS JOIN idem.installation i
 WHERE o.id = %(id)s
"""
FREEZE = """
INSERT INTO idem.requests (outbox_id, generation, step, intent_id, provider_key, provider, account, method, path,
                           headers, body)
SELECT o.id, %(generation)s, o.step, o.intent_id, %(key)s, o.provider, o.account, %(method)s, %(path)s,
       %(headers)s::jsonb, %(body)s
  FROM idem.outbox o WHERE o.id = %(id)s
"""
REKEY = """
UPDATE idem.outbox SET generation = %(generation)s, provider_key = %(key)s
 WHERE id = %(id)s AND status = 'held' AND generation = %(generation)s - 1
   AND (quiet_after IS NULL OR quiet_after <= statement_timestamp())
RETURNING id
"""


async def renew(connection: AsyncConnection[Any], catalogue: Catalogue, row: Row) -> UUID:
    """Give a resting row a new provider key and freeze its request anew; the new key.

    Runs under the row's lock, in the caller's transaction. Earlier keys stay known: proofs under them still find the
    row. Raises Refusal while an attempt under the old key may still act, and Unrenderable, ConfigError.
    """
    if row.status is not OutboxStatus.HELD:
        raise Refusal(f"the row is {row.status}: only a row at rest, proven not executed, may get a new provider key")
    terms = catalogue.require(row.operation)
    wanted = await (await records(connection).execute(WANTED, {"id": row.id})).fetchone()
    assert wanted is not None
    generation = wanted.generation + 1
    key = keys.provider_key(
        bytes(wanted.secret), wanted.tenant_id, row.operation, wanted.idempotency_key, row.step, generation
    )
    provider = catalogue.providers[row.provider]
    request = provider.freeze(terms.operation.request(wanted.params), str(key))
    frozen = {
        "id": row.id,
        "generation": generation,
        "key": key,
        "method": request.method,
        "path": request.path,
        "headers": json.dumps(dict(request.headers)),
        "body": request.body,
    }
    await connection.execute(FREEZE, frozen)
    if await (await connection.execute(REKEY, frozen)).fetchone() is None:
        raise Refusal(
            "an attempt under the old provider key may still act (quiet_after): wait until that time has passed"
        )
    return key
