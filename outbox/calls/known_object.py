"""Something that is known to exist at the provider: what to ask about where a question must have an answer."""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.provider import Question
from idem.outbox.providers.sender_identity import BITS

# Of an intent `n` and its request `r`.
_QUESTION = """r.provider_key::text AS provider_key, n.provider_reference AS reference, r.method, r.path, r.headers,
       extract(epoch FROM r.created_at)::float8 AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at"""
_SUCCEEDED = """c.provider = %(provider)s AND c.account = %(account)s AND c.provider_reference IS NOT NULL
        AND c.state = 'completed' AND c.outcome = 'succeeded'"""
NEWEST = f"""
SELECT {_QUESTION}
  FROM idem.intents n JOIN idem.requests r ON r.intent_id = n.id
 WHERE n.id = (SELECT c.id FROM idem.intents c
                WHERE {_SUCCEEDED}
                  AND c.settled_at < statement_timestamp() - make_interval(secs => %(horizon)s)
                ORDER BY c.id DESC LIMIT 1)
 ORDER BY r.generation DESC LIMIT 1
"""  # noqa: S608


async def newest(connection: AsyncConnection[Any], provider: str, account: str, horizon: float) -> Question | None:
    """About the newest succeeded intent of this account that the provider must show by now; None: there is none yet.

    `horizon`: seconds after which it is sure to be visible.
    """
    parameters = {"provider": provider, "account": account, "horizon": horizon}
    found = await (await records(connection).execute(NEWEST, parameters)).fetchone()
    return None if found is None else _question(found)


def _question(found: Any) -> Question:
    return Question(
        found.provider_key, found.reference, awaiting=False, sent_at=found.sent_at, method=found.method,
        path=found.path, asked_at=found.asked_at, headers=found.headers,
    )  # fmt: skip


NEAR = 200
"""Intents on each side of a row's own among which payments like it are looked for."""

# `near` walks one index from the row's own intent, and reads no more than it needs.
ALIKE = f"""
WITH near AS MATERIALIZED (
    (SELECT c.id, c.operation, c.sent_as, c.settled_at, c.provider_reference FROM idem.intents c
      WHERE {_SUCCEEDED} AND c.id < %(intent)s
      ORDER BY c.id DESC LIMIT %(near)s)
    UNION ALL
    (SELECT c.id, c.operation, c.sent_as, c.settled_at, c.provider_reference FROM idem.intents c
      WHERE {_SUCCEEDED} AND c.id > %(intent)s AND %(later)s
      ORDER BY c.id LIMIT %(near)s)
)
SELECT {_QUESTION}, r.body
  FROM near n CROSS JOIN LATERAL (
       SELECT q.provider_key, q.method, q.path, q.headers, q.body, q.created_at FROM idem.requests q
        WHERE q.intent_id = n.id ORDER BY q.generation DESC LIMIT 1) r
 WHERE n.sent_as >> {BITS} = %(sender)s AND n.operation = coalesce(%(operation)s, n.operation)
   AND n.settled_at < statement_timestamp() - make_interval(secs => %(horizon)s)
 ORDER BY n.id < %(intent)s DESC, n.id DESC LIMIT %(limit)s
"""  # noqa: S608


async def alike(
    connection: AsyncConnection[Any], provider: str, account: str, horizon: float, *,
    sender: int, intent: UUID, operation: str | None, later: bool, limit: int,
) -> list[tuple[FrozenRequest, Question]]:  # fmt: skip
    """Succeeded intents of this account that the provider must show by now, sent as this `sender` (`sent_as.who`).

    Each with its frozen request and its question, those before `intent` first. `operation`: of this
    one only; `later`: those after it too. `horizon` as in `newest`.
    """
    parameters = {
        "provider": provider, "account": account, "horizon": horizon, "sender": sender, "intent": intent,
        "operation": operation, "later": later, "near": NEAR, "limit": limit,
    }  # fmt: skip
    found = await (await records(connection).execute(ALIKE, parameters)).fetchall()
    return [(FrozenRequest(r.method, r.path, r.headers, bytes(r.body)), _question(r)) for r in found]


# The ids of rows are in the order of their making: `last` are the newest of the installation, of all accounts.
LAST_REQUEST = """
WITH last AS MATERIALIZED (
    SELECT q.outbox_id, q.generation, q.intent_id, q.provider, q.account FROM idem.requests q
     ORDER BY q.outbox_id DESC, q.generation DESC LIMIT %(near)s
)
SELECT r.provider_key::text AS provider_key, r.method, r.path, r.headers, r.body
  FROM idem.requests r
 WHERE (r.outbox_id, r.generation) = (
       SELECT l.outbox_id, l.generation FROM last l
        WHERE l.provider = %(provider)s AND l.account = %(account)s
          AND (SELECT n.operation FROM idem.intents n WHERE n.id = l.intent_id) = %(operation)s
        ORDER BY l.outbox_id DESC, l.generation DESC LIMIT 1)
"""


async def last_request(
    connection: AsyncConnection[Any], provider: str, account: str, operation: str
) -> tuple[FrozenRequest, str] | None:
    """The newest request of an operation with its provider key; None: it is not among the newest of all."""
    parameters = {"provider": provider, "account": account, "operation": operation, "near": NEAR}
    found = await (await records(connection).execute(LAST_REQUEST, parameters)).fetchone()
    if found is None:
        return None
    return FrozenRequest(found.method, found.path, found.headers, bytes(found.body)), found.provider_key
