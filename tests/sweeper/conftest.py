"""Rows in the states that a sweeper meets, made in bulk, and looks at what became of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fix_settings import with_constants
from fix_spine import catalogue as spine_catalogue
from fix_tables import Tables

from idem.outbox.config.settings import SweeperSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.sweeper.daemon import Sweeper, SweepResult

NOWHERE = "http://127.0.0.1:9"

QUEUED = Path(__file__).with_name("queued.sql").read_text()
AS_QUEUED = {"key": "k", "operation": "pay.keyed", "provider": "keyed", "start": 3600.0, "marks": False}
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
AS_CLAIMED = {"left": -1.0, "holder": "worker-1", "started": False, "sweeps": 0, "inline": False}
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
OLD_UUID7 = """
CREATE OR REPLACE FUNCTION idem.uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
               PLACING substring(int8send((extract(epoch FROM clock_timestamp() - interval 'DAYS days') * 1000)::bigint)
               FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$
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
class Rows(Tables):
    """Makes rows, each in a transaction of its own, and sweeps them."""

    known: Catalogue

    def sweeper(self, settings: SweeperSettings | None = None, **constants: Any) -> Sweeper:
        """A sweeper of these rows, whose constants are others."""
        return Sweeper(self.database, self.known, with_constants(settings or SweeperSettings(), **constants))

    async def made_ago(self, days: int) -> None:
        """Rows that are made from now on are this old: ids carry their time, and rows are moved, not time."""
        await self.execute(OLD_UUID7.replace("DAYS", str(days)))

    async def sweep(self) -> SweepResult:
        """One pass."""
        return await self.sweeper().run_once()

    async def many(self, n: int) -> None:
        """Pending rows without triggers and foreign keys: only there to be planned for."""
        await self.forced(QUEUED, n=n, **(AS_QUEUED | {"operation": "o", "provider": "p"}))

    async def queued(self, n: int = 1, **other: Any) -> list[UUID]:
        """Pending rows, as `AS_QUEUED` says, or otherwise; `start` seconds are left to start them. The intents."""
        return [row["intent"] for row in await self.all(QUEUED, n=n, **(AS_QUEUED | other))]

    async def claimed(self, n: int = 1, **other: Any) -> list[UUID]:
        """Claimed rows with `left` seconds of lease, as `AS_CLAIMED` says, or otherwise."""
        claim = {name: other.pop(name, usual) for name, usual in AS_CLAIMED.items()}
        intents = await self.queued(n, **other)
        await self.execute(CLAIMED, **claim, intents=intents)
        return intents

    async def completed(self, n: int = 1, *, left: float = -1, age: float = 0, **queued: Any) -> list[UUID]:
        """Settled intents, whose key lives `left` seconds longer; `age` of their event."""
        intents = await self.queued(n, **queued)
        await self.execute(COMPLETED, left=left, age=age, intents=intents)
        return intents

    async def held(self, n: int = 1, *, left: float = -1, redrive: float | None = None, **queued: Any) -> list[UUID]:
        """Intents at rest, whose key lives `left` seconds longer."""
        intents = await self.queued(n, **queued)
        await self.execute(HELD, left=left, redrive=redrive, intents=intents)
        return intents

    async def prove(self, intent: UUID, outcome: str, reference: str = "p-1", *, answered: bool = True) -> None:
        """Store a proof that waits for the intent's row."""
        await self.execute(PROOF, intent=intent, outcome=outcome, reference=reference, answered=answered)

    async def bury(self, intent: UUID, reason: str = "conflict") -> None:
        """Open a dead letter."""
        await self.execute(
            "INSERT INTO idem.dead_letters (intent_id, reason) VALUES (%(i)s, %(r)s)", i=intent, r=reason
        )

    async def kinds(self, intent: UUID) -> list[str]:
        sql = "SELECT kind FROM idem.evidence WHERE intent_id = %(i)s ORDER BY id"
        return await self.column(sql, i=intent)

    async def statuses(self) -> dict[str, int]:
        counted = await self.all("SELECT status, count(*) AS n FROM idem.outbox GROUP BY status")
        return {row["status"]: row["n"] for row in counted}

    async def has(self, statuses: dict[str, int]) -> bool:
        return await self.statuses() == statuses

    async def states(self) -> dict[str, int]:
        counted = await self.all("SELECT state, count(*) AS n FROM idem.idempotency_keys GROUP BY state")
        return {row["state"]: row["n"] for row in counted}


@pytest.fixture
def rows(database: Database) -> Rows:
    """Rows of `pay.keyed` and `pay.keyless`, at an address that nobody calls, in this test's own database."""
    return Rows(database, spine_catalogue(NOWHERE))
