"""What no role of a program may do to an order: move a row in it, take one out, or bring a blocked one to work."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from schema import shapes
from schema.databases import Installed

CHANGES = (
    "UPDATE idem.outbox SET ordering_number = 1",
    "UPDATE idem.outbox SET ordering_key = 'another'",
    "UPDATE idem.outbox SET ordering_group = NULL, ordering_key = NULL, ordering_number = NULL",
    "UPDATE idem.outbox SET refusal_holds = false",
    "UPDATE idem.outbox SET status = 'pending' WHERE status = 'waiting'",
    "UPDATE idem.outbox SET status = 'unfrozen' WHERE status = 'waiting'",
    "UPDATE idem.order_holds SET why = 'abandoned'",
    "TRUNCATE idem.order_holds",
)


@pytest.mark.parametrize("change", CHANGES)
def test_no_role_changes_an_order(rolled_back: psycopg.Connection[Any], pristine: Installed, change: str) -> None:
    rolled_back.execute(shapes.UNTRIGGERED)
    for intent in (shapes.INTENT, UUID(int=9)):
        shapes.insert(rolled_back, "intents", id=intent, idempotency_key=str(intent))
    shapes.insert(rolled_back, "outbox", status="pending", refusal_holds=True)
    later = {"id": UUID(int=8), "intent_id": UUID(int=9), "status": "waiting", "ordering_number": 2}
    shapes.insert(rolled_back, "outbox", refusal_holds=True, **later)
    shapes.insert(rolled_back, "order_holds", ordering_key="another")
    rolled_back.execute(shapes.TRIGGERED)
    rolled_back.execute(f"SET LOCAL ROLE {pristine.daemon}")
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.InsufficientPrivilege)):
        rolled_back.execute(change)
