"""An application that knows nothing of Python: it accepts by `idem.accept(tenant, operation, key, params)` alone."""

import json
from typing import Any
from uuid import UUID

import fix_sql
import psycopg
from fix_sql import engine_of
from psycopg.rows import namedtuple_row

from idem.outbox.accept.sql_operations import Synced, sync
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import ProviderRequest

ACCEPT = "SELECT d.* FROM idem.accept(%s, %s, %s, %s, %s) AS d"


def usual(params: Any) -> ProviderRequest:
    """The request of a payment."""
    return ProviderRequest("POST", "/payments", json={"amount": params["amount"], "currency": "eur"})


def synced(url: str, catalogue: Catalogue, **options: int) -> list[Synced]:
    """What `idem db sync` does."""
    with engine_of(url).begin() as connection:
        return sync(connection, catalogue.operations, catalogue.providers, **options)


def accept(
    connection: psycopg.Connection[Any],
    key: str | None = "k1",
    params: Any = None,
    *,
    operation: str = "pay.keyed",
    tenant: str | None = "t",
    notify: bool = False,
) -> Any:
    """The decision, in the connection's open transaction. `params`: a value, or JSON as str."""
    text = params if isinstance(params, str) else json.dumps({"amount": 100} if params is None else params)
    cursor = connection.cursor(row_factory=namedtuple_row)
    return cursor.execute(ACCEPT, (tenant, operation, key, text, notify)).fetchone()


class Application:
    """Accepts over connections of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def once(self, key: str | None = "k1", params: Any = None, **options: Any) -> Any:
        """The decision, in a transaction that is committed."""
        with psycopg.connect(self.url) as connection:
            return accept(connection, key, params, **options)

    def accepted(self, key: str = "k1", params: Any = None, **options: Any) -> UUID:
        """The intent of a key that is new."""
        decision = self.once(key, params, **options)
        assert decision.decision == "accepted", decision
        return UUID(str(decision.intent_id))

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """A look from outside."""
        return fix_sql.query(self.url, query, parameters)

    def counts(self) -> tuple[int, ...]:
        """Committed rows: keys, intents, outbox rows, frozen requests."""
        tables = "idempotency_keys", "intents", "outbox", "requests"
        return tuple(self.rows(f"SELECT count(*) FROM idem.{table}")[0][0] for table in tables)
