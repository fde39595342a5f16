"""An application with one table of its own, and its keys put into any state that they can be in."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import fix_sql
import psycopg
from fix_accept import Acceptor
from fix_sql import engine_of, forced
from sqlalchemy import Connection

from idem.decisions import Decision
from idem.outbox.domain.decisions import Accepted

ORDERS = "CREATE TABLE public.orders (id text PRIMARY KEY)"
ORDER = "INSERT INTO public.orders (id) VALUES ('order 1')"
WRITTEN = ("intents", "idempotency_keys", "outbox", "requests", "evidence")
"""What one accept writes: one row in each, or none in any."""
OPERATION = "pay.keyed"
ANSWER = b'{ "payment":"pay_1",  "note": "\xc3\xa9" }'
HEADERS = '{"content-type": "application/json", "x-note": "1"}'


class Shop:
    """Accepts over connections of its own; `counts` looks from outside, at what is committed."""

    def __init__(self, url: str, acceptor: Acceptor) -> None:
        self.url = url
        self.acceptor = acceptor
        self.engine = engine_of(url)

    def accept(self, connection: Connection, key: str = "k", amount: int = 100, **options: Any) -> Decision:
        """Decide in the caller's open transaction."""
        tenant, operation = options.pop("tenant", "t"), options.pop("operation", OPERATION)
        params = options.pop("params", {"amount": amount})
        return self.acceptor.accept(connection, tenant, operation, key, params, **options)

    def once(self, key: str = "k", amount: int = 100, **options: Any) -> Decision:
        """Decide in a transaction that is committed."""
        with self.engine.begin() as connection:
            return self.accept(connection, key, amount, **options)

    def accepted(self, key: str = "k", amount: int = 100, **options: Any) -> Accepted:
        """The same of a key that is new."""
        decision = self.once(key, amount, **options)
        assert isinstance(decision, Accepted), decision
        return decision

    @contextmanager
    def open(self, isolation: str = "READ COMMITTED") -> Iterator[Connection]:
        """A connection in an open transaction, which no wait can hang: whoever waits for a lock fails."""
        with self.engine.connect().execution_options(isolation_level=isolation) as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '3s'")
            connection.exec_driver_sql("SET LOCAL statement_timeout = '10s'")
            yield connection

    def counts(self) -> dict[str, int]:
        """Committed rows, in idem's tables and in the shop's own."""
        tables = [*(f"idem.{table}" for table in WRITTEN), "public.orders"]
        return {table: self.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables}

    def rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """A look from outside."""
        return fix_sql.query(self.url, query, parameters)

    def put(self, intent: UUID, state: str, status: str | None = None, *letters: str, claim: Any = None) -> None:
        """Put an intent, its key and its row where they can get by legal ways, past the triggers.

        `status` None: the row is gone. `claim`: seconds until the lease of the row's claim ends.
        """
        with psycopg.connect(self.url) as superuser:
            run: Any = superuser.execute
            run("SET session_replication_role = replica")
            values = {"i": intent, "state": state, "status": status, "claim": claim, "answer": ANSWER, "h": HEADERS}
            run(PUT_INTENT, values)
            run(PUT_KEY, values)
            run(PUT_ROW if status else "DELETE FROM idem.outbox WHERE intent_id = %(i)s", values)
            for letter in letters:
                run("INSERT INTO idem.dead_letters (intent_id, reason) VALUES (%s, %s)", (intent, letter))


def empty(url: str) -> None:
    """Delete every intent and order, past the triggers."""
    tables = "dead_letters", "proofs", "events", "evidence", "requests", "outbox", "idempotency_keys", "intents"
    forced(url, "".join(f"DELETE FROM idem.{table}; " for table in tables) + "DELETE FROM public.orders")


PUT_INTENT = """
UPDATE idem.intents SET state = CASE %(state)s WHEN 'expired' THEN 'completed' ELSE %(state)s END,
       outcome    = CASE WHEN %(state)s IN ('completed', 'expired') THEN 'succeeded' END,
       settled_at = CASE WHEN %(state)s IN ('completed', 'expired') THEN now() END
 WHERE id = %(i)s
"""
PUT_KEY = """
UPDATE idem.idempotency_keys SET state = %(state)s,
       response_status  = CASE %(state)s WHEN 'completed' THEN 201 END,
       response_headers = CASE %(state)s WHEN 'completed' THEN %(h)s::jsonb END,
       response_body    = CASE %(state)s WHEN 'completed' THEN %(answer)s::bytea END,
       completed_at     = CASE WHEN %(state)s IN ('completed', 'expired') THEN now() END
 WHERE intent_id = %(i)s
"""
PUT_ROW = """
UPDATE idem.outbox SET status = %(status)s, ordering_group = 'g', ordering_key = 'o', ordering_number = 1,
       approval = CASE %(status)s WHEN 'approval' THEN 'wanted' END,
       claim_token   = CASE WHEN %(claim)s::float8 IS NOT NULL THEN gen_random_uuid() END,
       claimed_by    = CASE WHEN %(claim)s::float8 IS NOT NULL THEN 'w' END,
       claimed_at    = CASE WHEN %(claim)s::float8 IS NOT NULL THEN now() END,
       claimed_until = now() + make_interval(secs => %(claim)s::float8),
       first_sent_at = CASE WHEN %(status)s IN ('claimed', 'unknown', 'awaiting') THEN now() END
 WHERE intent_id = %(i)s
"""
