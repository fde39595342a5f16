"""Handlers over this test's own database: orders of a user's, and a runner that is stepped by hand."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import fix_kept
import psycopg
import pytest
from fix_waiting import stopping
from psycopg.rows import dict_row

from idem.outbox.handlers.handler import Handler, handler
from idem.outbox.handlers.runner import HandlerRunner

ORDERS = """
CREATE TABLE public.orders (intent uuid NOT NULL, handler text NOT NULL, number integer NOT NULL, said text NOT NULL);
"""
INTENT = """
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, outcome, params, requested_at, settled_at)
VALUES (idem.uuid7(), 't', %(operation)s, gen_random_uuid()::text, 'completed', 'succeeded', %(params)s,
        now(), now())
RETURNING id
"""
EVENT = """
INSERT INTO idem.events (aggregateid, number, type, payload)
SELECT %(intent)s, 1 + coalesce(max(number), 0), %(type)s, '{"state": "completed", "outcome": "succeeded"}'
  FROM idem.events WHERE aggregateid = %(intent)s
"""


@dataclass
class House:
    """A user's application: orders, handlers of the operation `pay`, and a look at what is where."""

    url: str

    def handlers(self, *functions: Callable[..., Any], **options: Any) -> dict[str, Handler]:
        return {each.name: each for each in [handler("pay", each, **options) for each in functions]}

    def runner(self, known: Mapping[str, Handler], **options: Any) -> AbstractAsyncContextManager[HandlerRunner]:
        return stopping(HandlerRunner(self.url, known, **{"poll": 0.05, **options}))

    def connection(self) -> psycopg.Connection[dict[str, Any]]:
        connection = fix_kept.session(self.url)
        connection.row_factory = dict_row
        return connection

    async def settled(self, *functions: Any, params: str = "{}", read: Any = None, **options: Any) -> UUID:
        """An intent that settles when these handlers are known, and that they have been told of."""
        async with self.runner(self.handlers(*functions, read=read), **options) as runner:
            await runner.run_once()
            intent = self.intent("completed", params=params)
            await runner.run_once()
        return intent

    def run(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        with self.connection() as connection:
            found = connection.execute(sql, parameters)
            return found.fetchall() if found.description else []

    def intent(self, *types: str, connection: Any = None, operation: str = "pay", params: str = "{}") -> UUID:
        """An intent that has settled, with events of these types."""
        if connection is None:
            with self.connection() as own:
                return self.intent(*types, connection=own, operation=operation, params=params)
        intent: UUID = connection.execute(INTENT, {"operation": operation, "params": params}).fetchone()["id"]
        for each in types:
            self.event(intent, each, connection=connection)
        return intent

    def event(self, intent: UUID, type: str, *, connection: Any = None) -> None:
        if connection is None:
            with self.connection() as own:
                return self.event(intent, type, connection=own)
        connection.execute(EVENT, {"intent": intent, "type": type})

    def orders(self, intent: UUID | None = None) -> list[tuple[str, int]]:
        """What handlers have written: the function's name and the event's number, in the order of writing."""
        found = self.run(
            "SELECT handler, number FROM public.orders WHERE intent = %(i)s OR %(i)s::uuid IS NULL"
            " ORDER BY xmin::text::bigint",
            i=intent,
        )
        return [(each["handler"], each["number"]) for each in found]

    def marks(self) -> int:
        return int(self.run("SELECT count(*) AS n FROM idem.handled_events WHERE NOT skipped")[0]["n"])

    def waiting(self) -> list[dict[str, Any]]:
        return self.run("SELECT * FROM idem.handler_work ORDER BY handler, intent_id, number")

    def letters(self) -> list[dict[str, Any]]:
        return self.run("SELECT * FROM idem.dead_letters WHERE resolved_at IS NULL ORDER BY created_at, subject")

    def due(self) -> None:
        """Let the time pass until what failed is tried again."""
        self.run("UPDATE idem.handler_work SET due_at = statement_timestamp() WHERE due_at < 'infinity'")


WRITE = "INSERT INTO public.orders (intent, handler, number, said) VALUES (:intent, :handler, :number, :said)"


def words(name: str, settled: Any) -> dict[str, Any]:
    """The parameters of WRITE."""
    return {"intent": settled.intent, "handler": name, "number": settled.number, "said": settled.event}


@pytest.fixture
async def house(db_url: str) -> AsyncIterator[House]:
    made = House(db_url)
    made.run(ORDERS)
    yield made
