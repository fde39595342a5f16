"""The clock of a test's database, moved: `statement_timestamp()` differs from the real time by a fixed interval."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import fix_kept
import psycopg
from fix_database import connected
from fix_spine import Spine

OWN = """
CREATE OR REPLACE FUNCTION pg_catalog.statement_timestamp() RETURNS timestamptz
    LANGUAGE internal STABLE STRICT PARALLEL SAFE AS 'statement_timestamp'
"""
STEPPED = """
CREATE OR REPLACE FUNCTION pg_catalog.statement_timestamp() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT pg_catalog.now() + interval ''{} s'''
"""


# A change of a table makes every session plan anew what reads or writes it.
PLAN_ANEW = "".join(
    f"ALTER TABLE idem.{table} RESET (autovacuum_enabled);" for table in ("idempotency_keys", "intents", "outbox")
)


@contextmanager
def stepped(url: str, seconds: int) -> Iterator[None]:
    """Move the clock of this database by this interval, for statements planned from now on (`own_sessions`)."""
    assert fix_kept.own, "the test has the mark own_sessions: a session of another test has plans with the old clock"
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("SET allow_system_table_mods = on")
        own.execute(STEPPED.format(seconds))  # type: ignore[arg-type]
        own.execute(PLAN_ANEW)  # type: ignore[arg-type]
        try:
            yield
        finally:
            own.execute(OWN)
            own.execute(PLAN_ANEW)  # type: ignore[arg-type]


@asynccontextmanager
async def with_clock(spine: Spine, seconds: int) -> AsyncIterator[None]:
    """Run the daemons of this test with a clock that is off by this interval, on sessions of their own."""
    right = spine.database
    with stepped(spine.url, seconds):
        async with connected(spine.url, size=4) as spine.database:
            yield
        spine.database = right
