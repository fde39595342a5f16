"""One handler for one event: locked, run and marked in one transaction, which is the handler's own too."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from idem.outbox.domain.operation import Answer
from idem.outbox.handlers.handler import Handler, Settled
from idem.outbox.handlers.queue import WorkItem
from idem.outbox.handlers.turn import Turn, TurnEnd
from idem.outbox.values.errors import ParamsInvalid


class Execution(Turn):
    """One event for one handler."""

    def __init__(self, item: WorkItem, handler: Handler, limit: float) -> None:
        super().__init__(handler.function, limit)
        self.item = item
        self.handler = handler

    def begin(self, connection: Connection) -> tuple[Any, ...] | TurnEnd:
        what = lock_work(connection, self)
        return what if isinstance(what, str) else (what,)

    def end(self, connection: Connection, returned: Any) -> None:
        mark(connection, self)


LOCK_WORK = """
SELECT e.type, e.number, e.created_at, e.payload, n.id, n.tenant_id, n.operation, n.idempotency_key, n.params, n.label,
       n.provider, n.result, n.provider_reference, k.response_status, k.response_headers, k.response_body,
       EXISTS (SELECT FROM idem.handled_events m
                WHERE m.event_id = ANY (ARRAY[w.event_id]) AND m.handler = w.handler) AS marked,
       pg_backend_pid() AS backend, pg_current_xact_id()::text AS transaction
  FROM idem.handler_work w
  LEFT JOIN idem.events e ON e.aggregateid = ANY (ARRAY[w.intent_id]) AND e.number = w.number
  LEFT JOIN idem.intents n ON n.id = ANY (ARRAY[w.intent_id])
  LEFT JOIN idem.idempotency_keys k ON k.intent_id = ANY (ARRAY[n.id])
                                   AND k.state || '' = 'completed'
 WHERE w.handler = %(handler)s AND w.intent_id = %(intent)s AND w.number = %(number)s
   AND w.due_at <= statement_timestamp()
   AND (SELECT b.number FROM idem.handler_work b
         WHERE (b.handler, b.intent_id) = (w.handler, w.intent_id) AND b.number < w.number
         ORDER BY b.handler, b.intent_id, b.number LIMIT 1) IS NULL
   FOR UPDATE OF w SKIP LOCKED
"""


def lock_work(connection: Connection, execution: Execution) -> Settled[Any] | TurnEnd:
    """Lock the work of this execution and read its event, or say why there is nothing to run."""
    execution.prepare(connection)
    found = connection.exec_driver_sql(LOCK_WORK, _key(execution.item)).mappings().one_or_none()
    if found is None:
        return "not_now"
    if found["marked"] or found["type"] is None:
        return "marked"
    execution.transaction, execution.backend = found["transaction"], found["backend"]
    return settled(dict(found), execution.handler)


# In another transaction than the one in which it was taken there is nothing to mark.
MARK = """
WITH gone AS (
    DELETE FROM idem.handler_work w
     WHERE w.handler = %(handler)s AND w.intent_id = %(intent)s AND w.number = %(number)s
       AND pg_current_xact_id()::text = %(transaction)s
    RETURNING w.event_id, w.handler
)
INSERT INTO idem.handled_events (event_id, handler) SELECT g.event_id, g.handler FROM gone g
"""


def mark(connection: Connection, execution: Execution) -> None:
    """Write the mark in the transaction of the handler's own work. Raises OwnTransaction if it is another by now."""
    if connection.exec_driver_sql(MARK, {**_key(execution.item), "transaction": execution.transaction}).rowcount != 1:
        raise execution.own_transaction()


def _key(item: WorkItem) -> dict[str, Any]:
    return {"handler": item.handler, "intent": item.intent, "number": item.number}


def settled(found: Mapping[str, Any], handler: Handler) -> Settled[Any]:
    """The event for a handler. Raises what its model raises."""
    said = found["payload"]
    status = found["response_status"]
    of_step = found["type"] == "step"
    answer = None if status is None else Answer(status, bytes(found["response_body"]), found["response_headers"])
    return Settled(
        event=found["type"],
        number=found["number"],
        at=found["created_at"],
        intent=found["id"],
        tenant=found["tenant_id"],
        operation=found["operation"],
        key=found["idempotency_key"],
        params=_params(found, handler),
        label=found["label"],
        state=said.get("state") or "completed",
        outcome=said.get("outcome"),
        reference=said.get("provider_reference") or (None if of_step else found["provider_reference"]),
        status=said.get("status"),
        fields=said.get("fields") or (None if of_step else found["result"]) or {},
        interim=bool(said.get("interim")),
        details=said.get("details") or {},
        answer=answer,
        step=said.get("step") if of_step else None,
        step_outcome=said.get("step_outcome") if of_step else None,
    )


def _params(found: Mapping[str, Any], handler: Handler) -> Any:
    if found["provider"] is not None or found["payload"].get("outcome") not in ("local", "refused"):
        return handler.params(found["params"])
    # The endpoint's own end of it: what is kept is its client's body, and that need not be of the model.
    try:
        return handler.params(found["params"])
    except (ParamsInvalid, ValidationError):
        return found["params"]
