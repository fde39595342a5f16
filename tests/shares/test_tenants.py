"""Every new row knows its tenant, whichever function writes it."""

from __future__ import annotations

import psycopg
from fix_spine import Spine
from schema import shapes

TENANT = "SELECT tenant_id FROM idem.outbox"


async def test_accept_writes_whose_row_it_is(spine: Spine) -> None:
    spine.accept("k1", tenant="anna")
    assert [row["tenant_id"] for row in await spine.all(TENANT)] == ["anna"]


def test_by_its_key_or_by_its_intent(db_url: str) -> None:
    """A row of a key that is there already, and one whose intent alone is, as a later step may find it."""
    for tables in (("intents", "idempotency_keys"), ("intents",)):
        with psycopg.connect(db_url) as connection:
            shapes.plant(connection, *tables)
            shapes.insert(connection, "outbox")
            assert connection.execute(TENANT).fetchall() == [("t",)]
            connection.rollback()


def test_a_row_from_before_gets_its_tenant_when_it_is_written_again(db_url: str) -> None:
    with psycopg.connect(db_url) as connection:
        shapes.plant(connection, "intents", "outbox")
        assert connection.execute(TENANT).fetchall() == [("",)]
        connection.execute("UPDATE idem.outbox SET available_at = statement_timestamp()")
        assert connection.execute(TENANT).fetchall() == [("t",)]
