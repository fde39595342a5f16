"""What a tenant may read of its intents: state, answer, timeline. Intents of other tenants do not exist for it."""

import base64
import json
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.api.answers import SHOWN_STATUS
from idem.outbox.domain import plan as plans
from idem.outbox.domain.plan import FlowPlan
from idem.outbox.domain.states import KeyState
from idem.outbox.operator.step_view import steps_of
from idem.outbox.values.json_bytes import encoded

OLDEST: Final = UUID(int=0)
NEWEST: Final = UUID(int=2**128 - 1)
"""An id beyond every other: a page that begins here is the first."""
STATES: Final = sorted(str(state) for state in KeyState if state is not KeyState.EXPIRED)
"""What an intent can be: it outlives its key, so it is never expired."""

INTENT = """
SELECT n.id, n.operation, n.idempotency_key, n.state, n.outcome, o.status, o.step_name, n.label, n.provider_reference,
       n.created_at, n.settled_at, n.plan, o.step, n.interim, k.expires_at, k.response_status, k.response_headers,
       k.response_body
  FROM idem.intents n
  LEFT JOIN idem.outbox o ON o.intent_id = ANY (ARRAY[n.id])
  LEFT JOIN idem.idempotency_keys k ON k.intent_id = ANY (ARRAY[n.id]) AND k.state <> 'expired'
 WHERE n.id = %(intent)s AND n.tenant_id = %(tenant)s
"""


async def intent(connection: AsyncConnection[Any], tenant: str, intent_id: UUID) -> dict[str, Any] | None:
    """One intent with its answer or interim answer, the steps of a flow, and its timeline; None where this tenant has
    no such intent."""
    cursor = connection.cursor(row_factory=dict_row)
    found = await (await cursor.execute(INTENT, {"intent": intent_id, "tenant": tenant})).fetchone()
    if found is None:
        return None
    answers = {"answer": _answer(found), "interim": found["interim"]}
    flow = plans.plan(found["plan"])
    steps = {} if flow is None else {"steps": await _steps(connection, intent_id, flow, found)}
    return summary(found) | answers | steps | {"timeline": await _timeline(connection, intent_id, flow)}


STEPS = """
SELECT s.step, s.outcome, s.provider_reference, s.ended_at
  FROM idem.steps s WHERE s.intent_id = %(intent)s ORDER BY s.step
"""


async def _steps(
    connection: AsyncConnection[Any], intent_id: UUID, flow: FlowPlan, found: dict[str, Any]
) -> list[dict[str, Any]]:
    """Of a flow: its steps, without what is ours alone."""
    cursor = connection.cursor(row_factory=dict_row)
    ended = await (await cursor.execute(STEPS, {"intent": intent_id})).fetchall()
    shown = ("name", "state", "outcome", "provider_reference", "undoes")
    return [
        {name: step[name] for name in shown} | {"ended_at": _time(step["ended_at"])}
        for step in steps_of(flow, ended, None if found["step"] is None else found)
    ]


# What is ours alone stays here: holders, tokens, roles, and the words of operators. A step begins in the statement in
# which the one before it ends, and is shown after that.
TIMELINE = """
SELECT e.at, e.source, e.kind, e.outcome, e.to_state AS state, e.to_status AS status, e.step
  FROM idem.evidence e WHERE e.intent_id = %(intent)s ORDER BY e.at, e.kind = 'begun', e.id
"""


async def _timeline(connection: AsyncConnection[Any], intent_id: UUID, flow: FlowPlan | None) -> list[dict[str, Any]]:
    cursor = connection.cursor(row_factory=dict_row)
    rows = await (await cursor.execute(TIMELINE, {"intent": intent_id})).fetchall()
    lines = []
    for row in rows:
        number = row.pop("step")
        step = {} if flow is None else {"step": None if number is None else flow.step(number).name}
        lines.append(row | {"at": _time(row["at"]), "status": SHOWN_STATUS.get(row["status"])} | step)
    return lines


_SHOWN = """n.id, n.operation, n.idempotency_key, n.state, n.outcome, o.status, o.step_name, n.label,
       n.provider_reference, n.created_at, n.settled_at, k.expires_at"""
_BESIDE = """
  LEFT JOIN idem.outbox o ON o.intent_id = ANY (ARRAY[n.id])
  LEFT JOIN idem.idempotency_keys k ON k.intent_id = ANY (ARRAY[n.id]) AND k.state <> 'expired'"""


def listed(ids: str) -> str:
    """The statement that shows the intents of an array of ids, newest first."""
    return f"""
SELECT {_SHOWN}
  FROM unnest({ids}) AS f (id)
 CROSS JOIN LATERAL (SELECT i.* FROM idem.intents i WHERE i.id = f.id LIMIT 1) AS n{_BESIDE}
 ORDER BY n.id DESC
"""  # noqa: S608


# Each filter has an index that begins with it and ends with the id. A range over all its columns is estimated as many
# rows: with any statistics the index gives the order, and a page reads what it shows.
INTENTS = listed("""ARRAY(
    SELECT m.id FROM idem.intents m
     WHERE (m.tenant_id, m.id) >= (%(tenant)s, %(low)s::uuid)
       AND (m.tenant_id, m.id) < (%(tenant)s, %(before)s)
     ORDER BY m.tenant_id DESC, m.id DESC LIMIT %(limit)s)""")
INTENTS_OF_STATE = listed("""ARRAY(
    SELECT m.id FROM idem.intents m
     WHERE (m.state, m.tenant_id, m.id) >= (%(state)s, %(tenant)s, %(low)s::uuid)
       AND (m.state, m.tenant_id, m.id) < (%(state)s, %(tenant)s, %(before)s)
       AND m.state <> 'completed'
     ORDER BY m.state DESC, m.tenant_id DESC, m.id DESC LIMIT %(limit)s)""")
# A page of each state that is asked for, and of those the newest.
INTENTS_OF_OPERATION = listed("""ARRAY(
    SELECT p.id FROM unnest(%(states)s::text[]) AS s (state) CROSS JOIN LATERAL (
           SELECT m.id FROM idem.intents m
            WHERE (m.operation, m.tenant_id, m.state, m.id)
                  >= (%(operation)s, %(tenant)s, s.state, %(low)s::uuid)
              AND (m.operation, m.tenant_id, m.state, m.id) < (%(operation)s, %(tenant)s, s.state, %(before)s)
            ORDER BY m.operation DESC, m.tenant_id DESC, m.state DESC, m.id DESC LIMIT %(limit)s) AS p
     ORDER BY p.id DESC LIMIT %(limit)s)""")
# The operations that this ledger has, one after the other, and a page of each: of those the newest.
COMPLETED_INTENTS = listed("""ARRAY(
    WITH RECURSIVE known (operation) AS (
        (SELECT m.operation FROM idem.intents m ORDER BY m.operation, m.tenant_id, m.state, m.id LIMIT 1)
         UNION ALL
        SELECT (SELECT m.operation FROM idem.intents m WHERE m.operation > k.operation
                 ORDER BY m.operation, m.tenant_id, m.state, m.id LIMIT 1)
          FROM known k WHERE k.operation IS NOT NULL
    )
    SELECT p.id FROM known k CROSS JOIN LATERAL (
           SELECT m.id FROM idem.intents m
            WHERE (m.operation, m.tenant_id, m.state, m.id)
                  >= (k.operation, %(tenant)s, %(state)s, %(low)s::uuid)
              AND (m.operation, m.tenant_id, m.state, m.id) < (k.operation, %(tenant)s, %(state)s, %(before)s)
            ORDER BY m.operation DESC, m.tenant_id DESC, m.state DESC, m.id DESC LIMIT %(limit)s) AS p
     WHERE k.operation IS NOT NULL
     ORDER BY p.id DESC LIMIT %(limit)s)""")
INTENT_OF_KEY = f"""
SELECT {_SHOWN}
  FROM idem.intents n{_BESIDE}
 WHERE n.id = (SELECT i.intent_id FROM idem.idempotency_keys i
                WHERE i.tenant_id = %(tenant)s AND i.operation = %(operation)s AND i.idempotency_key = %(key)s)
   AND n.id < %(before)s AND (%(state)s::text IS NULL OR n.state = %(state)s)
 LIMIT %(limit)s
"""  # noqa: S608


async def intents(
    connection: AsyncConnection[Any],
    tenant: str,
    *,
    state: str | None = None,
    operation: str | None = None,
    key: str | None = None,
    low: UUID = OLDEST,
    before: UUID | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """A tenant's intents, newest first, of ids from `low` on; `before` is the last id of the page before.

    A `key` needs its operation, and takes no `low`.
    """
    parameters: dict[str, Any] = {"tenant": tenant, "low": low, "before": before or NEWEST, "limit": limit}
    if key is not None:
        query = INTENT_OF_KEY
        parameters |= {"key": key, "operation": operation, "state": state}
    elif operation is not None:
        query = INTENTS_OF_OPERATION
        parameters |= {"operation": operation, "states": STATES if state is None else [state]}
    elif state is not None:
        query = COMPLETED_INTENTS if state == KeyState.COMPLETED else INTENTS_OF_STATE
        parameters["state"] = state
    else:
        query = INTENTS
    cursor = connection.cursor(row_factory=dict_row)
    return [summary(row) for row in await (await cursor.execute(query, parameters)).fetchall()]


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the tenant sees it."""
    return {
        "id": str(row["id"]),
        "operation": row["operation"],
        "key": row["idempotency_key"],
        "state": row["state"],
        "outcome": row["outcome"],
        "status": SHOWN_STATUS.get(row["status"]),
        **({} if row["step_name"] is None else {"step": row["step_name"]}),
        "label": row["label"],
        "provider_reference": row["provider_reference"],
        "created_at": _time(row["created_at"]),
        "settled_at": _time(row["settled_at"]),
        "expires_at": _time(row["expires_at"]),
    }


def _answer(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["response_status"] is None:
        return None
    headers, raw = row["response_headers"], bytes(row["response_body"])
    answer: dict[str, Any] = {"status": row["response_status"], "headers": headers}
    media_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    if "json" in media_type:
        try:
            body = json.loads(raw)
            encoded(body)
        except (ValueError, RecursionError):
            pass  # no JSON, or such as cannot be sent again: NaN, a lone surrogate, deeper than anybody reads
        else:
            return answer | {"body": body}
    return answer | {"body_base64": base64.b64encode(raw).decode("ascii")}


def _time(moment: datetime | None) -> str | None:
    # RFC 3339, in UTC as the session is.
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
