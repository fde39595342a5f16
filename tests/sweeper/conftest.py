"""Rows in the states that a sweeper meets, made in bulk, and looks at what became of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fix_spine import catalogue as spine_catalogue
from psycopg.rows import dict_row

from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue

NOWHERE = "http://127.0.0.1:9"

QUEUED = Path(__file__).with_name("queued.sql").read_text()
CLAIMED = """
UPDATE idem.outbox
   SET status = 'claimed', status_since = statement_timestamp(), attempt = attempt + 1,
       claim_token = gen_random_uuid(), claimed_by = %(holder)s,
       claimed_at = statement_timestamp() - interval '1 minute',
       claimed_until = statement_timestamp() + make_interval(secs => %(left)s),
       first_sent_at = statement_timestamp() - interval '1 minute',
       started_at = CASE WHEN %(started)s THEN statement_timestamp() END,
       sweeps = %(sweeps)s, inline = %(inline)s
 WHERE intent_id = ANY (%(intents)s)
"""
COMPLETED = Path(__file__).with_name("completed.sql").read_text()
HELD = """
WITH rows AS (UPDATE idem.outbox SET status = 'held', status_since = statement_timestamp(),
                     redrive_at = statement_timestamp() + make_interval(secs => %(redrive)s)
               WHERE intent_id = ANY (%(intents)s)),
     intents AS (UPDATE idem.intents SET state = 'failed_retryable' WHERE id = ANY (%(intents)s))
UPDATE idem.idempotency_keys
   SET state = 'failed_retryable', last_error_code = 'too_late',
       expires_at = statement_timestamp() + make_interval(secs => %(left)s)
 WHERE intent_id = ANY (%(intents)s)
"""
PROOF = """
INSERT INTO idem.proofs (outbox_id, intent_id, source, attempt, outcome, reference, status,
                         answer_status, answer_headers, answer_body)
SELECT o.id, o.intent_id, 'webhook', o.attempt, %(outcome)s, %(reference)s, 'word',
       CASE WHEN %(answered)s THEN 201 END, CASE WHEN %(answered)s THEN '{}'::jsonb END,
       CASE WHEN %(answered)s THEN 'by proof'::bytea END
  FROM idem.outbox o WHERE o.intent_id = %(intent)s
"""


@dataclass
class Rows:
    """Makes rows and looks at them, each in a transaction of its own."""

    database: Database

    async def run(self, sql: str, **parameters: Any) -> None:
        async with self.database.connection() as connection:
            await connection.execute(sql, parameters)

    async def all(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        async with self.database.connection() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            return await (await cursor.execute(sql, parameters)).fetchall()

    async def value(self, sql: str, **parameters: Any) -> Any:
        (row,) = await self.all(sql, **parameters)
        (only,) = row.values()
        return only

    async def many(self, n: int) -> None:
        """Pending rows without triggers and foreign keys: only there to be planned for."""
        await self.unguarded(QUEUED, n=n, key="k", operation="o", provider="p", start=3600, marks=False)

    async def unguarded(self, sql: str, **parameters: Any) -> None:
        async with self.database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(sql, parameters)

    async def queued(
        self,
        n: int = 1,
        *,
        key: str = "k",
        operation: str = "pay.keyed",
        provider: str = "keyed",
        start: float = 3600,
        marks: bool = False,
    ) -> list[UUID]:
        """Pending rows; `start` seconds are left to start them. The intents."""
        made = await self.all(QUEUED, n=n, key=key, operation=operation, provider=provider, start=start, marks=marks)
        return [row["intent"] for row in made]

    async def claimed(
        self,
        n: int = 1,
        *,
        left: float = -1,
        holder: str = "worker-1",
        started: bool = False,
        sweeps: int = 0,
        inline: bool = False,
        **queued: Any,
    ) -> list[UUID]:
        """Claimed rows with `left` seconds of lease."""
        intents = await self.queued(n, **queued)
        await self.run(
            CLAIMED, left=left, holder=holder, started=started, sweeps=sweeps, inline=inline, intents=intents
        )
        return intents

    async def completed(self, n: int = 1, *, left: float = -1, age: float = 0, **queued: Any) -> list[UUID]:
        """Settled intents, whose key lives `left` seconds longer; `age` of their event."""
        intents = await self.queued(n, **queued)
        await self.run(COMPLETED, left=left, age=age, intents=intents)
        return intents

    async def held(self, n: int = 1, *, left: float = -1, redrive: float | None = None, **queued: Any) -> list[UUID]:
        """Intents at rest, whose key lives `left` seconds longer."""
        intents = await self.queued(n, **queued)
        await self.run(HELD, left=left, redrive=redrive, intents=intents)
        return intents

    async def prove(self, intent: UUID, outcome: str, reference: str = "p-1", *, answered: bool = True) -> None:
        """Store a proof that waits for the intent's row."""
        await self.run(PROOF, intent=intent, outcome=outcome, reference=reference, answered=answered)

    async def bury(self, intent: UUID, reason: str = "conflict") -> None:
        """Open a dead letter."""
        await self.run("INSERT INTO idem.dead_letters (intent_id, reason) VALUES (%(i)s, %(r)s)", i=intent, r=reason)

    async def row(self, intent: UUID) -> dict[str, Any]:
        (row,) = await self.all("SELECT * FROM idem.outbox WHERE intent_id = %(i)s", i=intent)
        return row

    async def key(self, intent: UUID) -> dict[str, Any]:
        (row,) = await self.all("SELECT * FROM idem.idempotency_keys WHERE intent_id = %(i)s", i=intent)
        return row

    async def letters(self, intent: UUID) -> list[str]:
        sql = "SELECT reason FROM idem.dead_letters WHERE intent_id = %(i)s AND resolved_at IS NULL ORDER BY reason"
        return [row["reason"] for row in await self.all(sql, i=intent)]

    async def kinds(self, intent: UUID) -> list[str]:
        sql = "SELECT kind FROM idem.evidence WHERE intent_id = %(i)s ORDER BY id"
        return [row["kind"] for row in await self.all(sql, i=intent)]

    async def statuses(self) -> dict[str, int]:
        counted = await self.all("SELECT status, count(*) AS n FROM idem.outbox GROUP BY status")
        return {row["status"]: row["n"] for row in counted}

    async def states(self) -> dict[str, int]:
        counted = await self.all("SELECT state, count(*) AS n FROM idem.idempotency_keys GROUP BY state")
        return {row["state"]: row["n"] for row in counted}


@pytest.fixture
def rows(database: Database) -> Rows:
    """Rows in this test's own database."""
    return Rows(database)


@pytest.fixture
def known() -> Catalogue:
    """The operations `pay.keyed` and `pay.keyless`, at an address that nobody calls."""
    return spine_catalogue(NOWHERE)
