"""Something that is known to exist at the provider: what to ask about where a question must have an answer."""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.provider import Question
from idem.outbox.providers.sender_identity import BITS

# Of a call `n` and its request `r`.
_QUESTION = """r.provider_key::text AS provider_key, n.provider_reference AS reference, r.method, r.path, r.headers,
       extract(epoch FROM r.created_at)::float8 AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at"""
_SUCCEEDED = """c.provider = %(provider)s AND c.account = %(account)s AND c.provider_reference IS NOT NULL
        AND c.state = 'completed' AND c.outcome = 'succeeded'"""
# Of flows the steps are the calls, each known by the id of its row. Ids are in the order of time.
_STEP_SUCCEEDED = """s.provider = %(provider)s AND s.account = %(account)s AND s.provider_reference IS NOT NULL
        AND s.outcome = 'succeeded'"""
_REQUEST = """(SELECT q.*
          FROM (SELECT a.* FROM idem.requests a WHERE a.intent_id = CASE WHEN n.step IS NULL THEN n.id END
                 UNION ALL
                SELECT a.* FROM idem.requests a WHERE a.outbox_id = CASE WHEN n.step IS NOT NULL THEN n.id END) q
         ORDER BY q.generation DESC LIMIT 1) r"""
NEWEST = f"""
WITH newest AS MATERIALIZED (
    (SELECT c.id, NULL::text AS step, c.provider_reference FROM idem.intents c
      WHERE {_SUCCEEDED} AND c.settled_at < statement_timestamp() - make_interval(secs => %(horizon)s)
      ORDER BY c.id DESC LIMIT 1)
    UNION ALL
    (SELECT s.outbox_id, s.name, s.provider_reference FROM idem.steps s
      WHERE {_STEP_SUCCEEDED} AND s.ended_at < statement_timestamp() - make_interval(secs => %(horizon)s)
      ORDER BY s.outbox_id DESC LIMIT 1)
)
SELECT {_QUESTION}
  FROM (SELECT w.* FROM newest w ORDER BY w.id DESC LIMIT 1) n CROSS JOIN LATERAL {_REQUEST}
"""  # noqa: S608


async def newest(connection: AsyncConnection[Any], provider: str, account: str, horizon: float) -> Question | None:
    """About the newest succeeded call of this account that the provider must show by now; None: there is none yet.

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
"""Calls on each side of a row's own among which payments like it are looked for."""

# `near` walks one index from the row's own call, and reads no more than it needs; the same for steps.
ALIKE = f"""
WITH near AS MATERIALIZED (
    (SELECT c.id, NULL::text AS step, c.operation, c.sent_as, c.settled_at, c.provider_reference FROM idem.intents c
      WHERE {_SUCCEEDED} AND c.id < %(intent)s
      ORDER BY c.id DESC LIMIT %(near)s)
    UNION ALL
    (SELECT c.id, NULL, c.operation, c.sent_as, c.settled_at, c.provider_reference FROM idem.intents c
      WHERE {_SUCCEEDED} AND c.id > %(intent)s AND %(later)s
      ORDER BY c.id LIMIT %(near)s)
), near_steps AS MATERIALIZED (
    (SELECT s.outbox_id AS id, s.name AS step, s.intent_id, s.sent_as, s.ended_at, s.provider_reference
       FROM idem.steps s
      WHERE {_STEP_SUCCEEDED} AND s.outbox_id < %(row)s
      ORDER BY s.outbox_id DESC LIMIT %(near)s)
    UNION ALL
    (SELECT s.outbox_id, s.name, s.intent_id, s.sent_as, s.ended_at, s.provider_reference
       FROM idem.steps s
      WHERE {_STEP_SUCCEEDED} AND s.outbox_id > %(row)s AND %(later)s
      ORDER BY s.outbox_id LIMIT %(near)s)
)
SELECT {_QUESTION}, r.body
  FROM (SELECT c.id, c.step, c.operation, c.sent_as, c.settled_at, c.provider_reference, c.id < %(intent)s AS before
          FROM near c
         UNION ALL
        SELECT s.id, s.step, (SELECT i.operation FROM idem.intents i WHERE i.id = s.intent_id LIMIT 1), s.sent_as,
               s.ended_at, s.provider_reference, s.id < %(row)s
          FROM near_steps s) n
 CROSS JOIN LATERAL {_REQUEST}
 WHERE n.sent_as >> {BITS} = %(sender)s
   AND (%(operation)s::text IS NULL OR n.operation = %(operation)s AND n.step IS NOT DISTINCT FROM %(step)s)
   AND n.settled_at < statement_timestamp() - make_interval(secs => %(horizon)s)
 ORDER BY n.before DESC, n.id DESC LIMIT %(limit)s
"""  # noqa: S608


async def alike(
    connection: AsyncConnection[Any], provider: str, account: str, horizon: float, *,
    sender: int, intent: UUID, row: UUID, operation: str | None, step: str | None, later: bool, limit: int,
) -> list[tuple[FrozenRequest, Question]]:  # fmt: skip
    """Succeeded calls of this account that the provider must show by now, sent as this `sender` (`sent_as.who`).

    Each with its frozen request and its question, those before `intent` (of flows, before `row`) first. `operation`:
    of this one only, and of its `step`; `later`: those after it too. `horizon` as in `newest`.
    """
    parameters = {
        "provider": provider, "account": account, "horizon": horizon, "sender": sender, "intent": intent,
        "row": row, "operation": operation, "step": step, "later": later, "near": NEAR, "limit": limit,
    }  # fmt: skip
    found = await (await records(connection).execute(ALIKE, parameters)).fetchall()
    return [(FrozenRequest(r.method, r.path, r.headers, bytes(r.body)), _question(r)) for r in found]


# The ids of rows are in the order of their making: `last` are the newest of the installation, of all accounts.
LAST_REQUEST = """
WITH last AS MATERIALIZED (
    SELECT q.outbox_id, q.generation, q.intent_id, q.step, q.provider, q.account FROM idem.requests q
     ORDER BY q.outbox_id DESC, q.generation DESC LIMIT %(near)s
)
SELECT r.provider_key::text AS provider_key, r.method, r.path, r.headers, r.body
  FROM idem.requests r
 WHERE (r.outbox_id, r.generation) = (
       SELECT l.outbox_id, l.generation FROM last l
        WHERE l.provider = %(provider)s AND l.account = %(account)s
          AND (SELECT n.operation = %(operation)s
                      AND CASE WHEN n.plan IS NOT NULL THEN n.plan -> (l.step - 1) ->> 'name' END
                          IS NOT DISTINCT FROM %(step)s
                 FROM idem.intents n WHERE n.id = l.intent_id)
        ORDER BY l.outbox_id DESC, l.generation DESC LIMIT 1)
"""


async def last_request(
    connection: AsyncConnection[Any], provider: str, account: str, operation: str, step: str | None
) -> tuple[FrozenRequest, str] | None:
    """The newest request of an operation (of its `step`, of a flow) with its provider key; None: it is not among the
    newest of all."""
    parameters = {"provider": provider, "account": account, "operation": operation, "step": step, "near": NEAR}
    found = await (await records(connection).execute(LAST_REQUEST, parameters)).fetchone()
    if found is None:
        return None
    return FrozenRequest(found.method, found.path, found.headers, bytes(found.body)), found.provider_key
