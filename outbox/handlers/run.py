"""Runs one handler for one event: locks, runs and marks it in one transaction, which is the handler's own too.

Written once, synchronous; asynchronous handlers go through `run_sync` for all but their own code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pydantic import ValidationError
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from idem.outbox.database import session
from idem.outbox.domain.operation import Answer
from idem.outbox.handlers.handler import ConnectionKind, Handler, Settled
from idem.outbox.handlers.queue import WorkItem
from idem.outbox.values.errors import IdemError, ParamsInvalid

RunEnd: TypeAlias = Literal["succeeded", "not_now", "marked"]
"""not_now: another executor has it, or an earlier event comes first. marked: done before, or past its retention."""


class OwnTransaction(IdemError):
    """A handler ended the transaction that it shares with its mark."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the handler {what} the transaction that its mark is written in: a handler only writes, and idem commits "
            "what it wrote together with the mark. Remove it; for a part that may fail use begin_nested()"
        )


@dataclass(slots=True)
class Execution:
    """One event for one handler. `backend` is the server process in whose transaction it runs, while it runs."""

    item: WorkItem
    handler: Handler
    limit: float
    """Seconds that it may take."""
    backend: int | None = None
    transaction: str = ""
    ended_by_handler: str | None = None
    _ours: bool = field(default=True, repr=False)

    def guard(self, connection: Connection) -> None:
        """From now on a COMMIT or ROLLBACK on this connection is the handler's, and refused."""

        def refuse(what: str) -> None:
            if not self._ours:
                self.ended_by_handler = self.ended_by_handler or what
                raise OwnTransaction(what)

        # Kept by the connection object, which is of this turn alone.
        event.listen(connection, "commit", lambda _: refuse("commits"))
        event.listen(connection, "rollback", lambda _: refuse("rolls back"))
        self._ours = False

    def over(self) -> None:
        """The handler has ended: what comes now is ours. Raises OwnTransaction if it had tried to end it."""
        self._ours = True
        if self.ended_by_handler is not None:
            raise OwnTransaction(self.ended_by_handler)

    def abandon(self) -> None:
        """The same after an exception."""
        self._ours = True


LOCK_TIMEOUT: Final = 10.0
"""Seconds that a handler may wait for a lock: less than its time, so that what it waits for is named."""

LOCK_WORK = """
SELECT e.type, e.number, e.created_at, e.payload, n.id, n.tenant_id, n.operation, n.idempotency_key, n.params, n.label,
       n.provider, n.result, n.provider_reference, k.response_status, k.response_headers, k.response_body,
       EXISTS (SELECT FROM idem.handled_events m WHERE m.event_id = w.event_id AND m.handler = w.handler) AS marked,
       pg_backend_pid() AS backend, pg_current_xact_id()::text AS transaction
  FROM idem.handler_work w
  LEFT JOIN idem.events e ON e.aggregateid = w.intent_id AND e.number = w.number
  LEFT JOIN idem.intents n ON n.id = w.intent_id
  LEFT JOIN idem.idempotency_keys k
    ON k.tenant_id = n.tenant_id AND k.operation = n.operation AND k.idempotency_key = n.idempotency_key
   AND k.intent_id = n.id AND k.state = 'completed'
 WHERE w.handler = %(handler)s AND w.intent_id = %(intent)s AND w.number = %(number)s
   AND w.due_at <= statement_timestamp()
   AND NOT EXISTS (SELECT FROM idem.handler_work b
                    WHERE b.handler = w.handler AND b.intent_id = w.intent_id AND b.number < w.number)
   FOR UPDATE OF w SKIP LOCKED
"""


def lock_work(connection: Connection, execution: Execution) -> Settled[Any] | RunEnd:
    """Lock the work of this execution and read its event, or say why there is nothing to run."""
    limit = f"{int(execution.limit * 1000)}ms"
    settings = {
        **session.VALUES,
        "statement_timeout": limit,
        "lock_timeout": f"{int(min(LOCK_TIMEOUT, execution.limit / 2) * 1000)}ms",
        "idle_in_transaction_session_timeout": limit,
    }
    # Of this transaction alone, so that nothing of one handler is left for the next, also behind a pooler.
    connection.exec_driver_sql(session.SETTINGS, session.parameters(settings, local=True))
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
        execution.ended_by_handler = "ended"
        raise OwnTransaction("ended")


def _key(item: WorkItem) -> dict[str, Any]:
    return {"handler": item.handler, "intent": item.intent, "number": item.number}


def settled(found: Mapping[str, Any], handler: Handler) -> Settled[Any]:
    """The event for a handler. Raises what its model raises."""
    said = found["payload"]
    status = found["response_status"]
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
        reference=said.get("provider_reference") or found["provider_reference"],
        status=said.get("status"),
        fields=said.get("fields") or found["result"] or {},
        interim=bool(said.get("interim")),
        details=said.get("details") or {},
        answer=answer,
    )


def _params(found: Mapping[str, Any], handler: Handler) -> Any:
    if found["provider"] is not None or found["payload"].get("outcome") not in ("local", "refused"):
        return handler.params(found["params"])
    # The endpoint's own end of it: what is kept is its client's body, and that need not be of the model.
    try:
        return handler.params(found["params"])
    except (ParamsInvalid, ValidationError):
        return found["params"]


def run_handler(connection: Connection, execution: Execution, way: ConnectionKind, kind: type | None) -> RunEnd:
    """Run a synchronous handler to its commit. Raises what the handler raises."""
    with connection.begin() as transaction:
        what = lock_work(connection, execution)
        if isinstance(what, str):
            return what
        session = None
        execution.guard(connection)
        try:
            if way == "Session":
                session = (kind or Session)(bind=connection, join_transaction_mode="control_fully")
                execution.handler.function(session, what)
                session.flush()
            else:
                execution.handler.function(connection, what)
            execution.over()
            mark(connection, execution)
            transaction.commit()
        finally:
            execution.abandon()
            if session is not None:
                session.close()
    return "succeeded"


async def run_handler_async(
    connection: AsyncConnection, execution: Execution, way: ConnectionKind, kind: type | None
) -> RunEnd:
    """The same of an asynchronous handler."""
    async with connection.begin() as transaction:
        what = await connection.run_sync(lock_work, execution)
        if isinstance(what, str):
            return what
        session = None
        execution.guard(connection.sync_connection)  # type: ignore[arg-type]
        try:
            if way == "AsyncSession":
                session = (kind or AsyncSession)(bind=connection, join_transaction_mode="control_fully")
                await execution.handler.function(session, what)
                await session.flush()
            else:
                await execution.handler.function(connection, what)
            execution.over()
            await connection.run_sync(mark, execution)
            await transaction.commit()
        finally:
            execution.abandon()
            if session is not None:
                await session.close()
    return "succeeded"
