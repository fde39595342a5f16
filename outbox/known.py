"""Something that is known to exist at the provider: what to ask about where a question must have an answer."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database import records
from idem.outbox.provider import Question

NEWEST = """
SELECT r.provider_key::text AS provider_key, n.provider_reference AS reference, r.method, r.path, r.headers,
       extract(epoch FROM r.created_at)::float8 AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at
  FROM idem.intents n JOIN idem.requests r ON r.intent_id = n.id
 WHERE n.id = (SELECT c.id FROM idem.intents c
                WHERE c.provider = %(provider)s AND c.account = %(account)s AND c.provider_reference IS NOT NULL
                  AND c.state = 'completed' AND c.outcome = 'succeeded'
                  AND c.settled_at < statement_timestamp() - make_interval(secs => %(horizon)s)
                ORDER BY c.id DESC LIMIT 1)
 ORDER BY r.generation DESC LIMIT 1
"""


async def newest(connection: AsyncConnection[Any], provider: str, account: str, horizon: float) -> Question | None:
    """About the newest succeeded intent of this account that the provider must show by now; None: there is none yet.

    `horizon`: seconds after which it is sure to be visible.
    """
    parameters = {"provider": provider, "account": account, "horizon": horizon}
    found = await (await records(connection).execute(NEWEST, parameters)).fetchone()
    if found is None:
        return None
    return Question(
        found.provider_key,
        found.reference,
        awaiting=False,
        sent_at=found.sent_at,
        method=found.method,
        path=found.path,
        asked_at=found.asked_at,
        headers=found.headers,
    )
