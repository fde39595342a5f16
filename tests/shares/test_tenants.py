"""Every new row knows its tenant, whichever function writes it."""

import psycopg
from fix_spine import Spine
from schema import shapes

TENANT = "SELECT tenant_id FROM idem.outbox"


async def test_accept_writes_whose_row_it_is(spine: Spine) -> None:
    spine.accept("k1", tenant="anna")
    assert [row["tenant_id"] for row in await spine.all(TENANT)] == ["anna"]


def test_by_its_key_or_by_its_intent(db_url: str) -> None:
    """A row of a key that is there already, and one whose intent alone is, as a later step may find it.

    Whatever the INSERT says."""
    for tables in (("intents", "idempotency_keys"), ("intents",)):
        with psycopg.connect(db_url) as connection:
            shapes.plant(connection, *tables)
            shapes.insert(connection, "outbox", tenant_id="another")
            assert connection.execute(TENANT).fetchall() == [("t",)]
            connection.rollback()
