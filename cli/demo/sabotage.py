"""Breaking one rule on purpose, from outside: as the owner of the schema, past triggers, beside idem's own code.

Each sabotage waits until it finds a victim, strikes once and says whom it hit. What it does is what a bug, or a person
with a psql prompt, could do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.cli.demo.clients import Clients
from idem.cli.demo.scenario import KEYLESS
from idem.cli.demo.settings import Sabotage
from idem.testing.bank import Request, read_log

POLL = 0.1


@dataclass(frozen=True, slots=True)
class Victim:
    """The intent whose rule was broken."""

    intent: str
    key: str


class Saboteur:
    """Strikes once. `victim` is None until it has."""

    def __init__(self, sabotage: Sabotage, url: str, bank_log: Path, clients: Clients) -> None:
        self.sabotage = sabotage
        self.victim: Victim | None = None
        self._url = url
        self._bank_log = bank_log
        self._clients = clients

    async def run(self) -> None:
        """Until it has struck."""
        while self.victim is None:
            try:
                async with await AsyncConnection.connect(self._url, row_factory=dict_row) as connection:
                    await connection.execute("SET LOCAL lock_timeout = '2s'")
                    victim = await self._strike(connection)
                self.victim = victim
            except psycopg.Error:
                # Somebody held the row or the table: look for another moment.
                pass
            await asyncio.sleep(POLL)

    async def _strike(self, connection: AsyncConnection[dict[str, Any]]) -> Victim | None:
        match self.sabotage:
            case Sabotage.BLIND_RESEND:
                return await self._blind_resend(connection)
            case Sabotage.LOSE_ROW:
                return await self._lose_row(connection)
            case Sabotage.REWRITE_ANSWER:
                return await self._rewrite_answer(connection)
            case Sabotage.BELIEVE_ABSENT:
                return await self._believe_absent(connection)
            case Sabotage.SKIP_EVIDENCE:
                return await self._skip_evidence(connection)
            case _ as unlisted:
                assert_never(unlisted)

    async def _blind_resend(self, connection: AsyncConnection[dict[str, Any]]) -> Victim | None:
        """An unknown row goes back into the queue, as a lease-and-retry library does it."""
        row = await self._unknown_of_old_bank(connection, "o.looks >= 0")
        if row is None:
            return None
        await self._past(connection, "outbox", "outbox_transition_is_listed", BACK_TO_QUEUE, {"id": row["id"]})
        return _victim(row)

    async def _lose_row(self, connection: AsyncConnection[dict[str, Any]]) -> Victim | None:
        row = await self._one(connection, OPEN_ROW, {})
        if row is None:
            return None
        await self._past(connection, "outbox", "outbox_row_leaves_when_done", LOSE, {"id": row["id"]})
        return _victim(row)

    async def _rewrite_answer(self, connection: AsyncConnection[dict[str, Any]]) -> Victim | None:
        row = await self._one(connection, SEEN_ANSWER, {"intents": list(self._clients.answered.values())})
        if row is None:
            return None
        change = REWRITE, {"id": row["intent_id"]}
        await self._past(connection, "idempotency_keys", "stored_answer_is_immutable", *change)
        return _victim(row)

    async def _believe_absent(self, connection: AsyncConnection[dict[str, Any]]) -> Victim | None:
        """What a reconciler without quiet time and horizon would write at its first look that shows nothing."""
        row = await self._unknown_of_old_bank(connection, "o.absents >= 1")
        if row is None:
            return None
        for statement in BELIEVE:
            await connection.execute(statement, {"id": row["id"], "intent": row["intent_id"]})
        return _victim(row)

    async def _skip_evidence(self, connection: AsyncConnection[dict[str, Any]]) -> Victim | None:
        row = await self._one(connection, SETTLED, {})
        if row is None:
            return None
        await self._past(connection, "evidence", "evidence_is_kept", FORGET, {"id": row["intent_id"]})
        return _victim(row)

    async def _unknown_of_old_bank(
        self, connection: AsyncConnection[dict[str, Any]], condition: str
    ) -> dict[str, Any] | None:
        """An unknown row that the bank has made or will make, so that a second sending does harm."""
        query = UNKNOWN_OF.format(condition=condition)
        rows = await (await connection.execute(query.encode(), {"provider": KEYLESS})).fetchall()
        sends = _by_reference(read_log(self._bank_log).sends(account=KEYLESS)) if rows else {}
        for row in rows:
            if len(found := sends.get(row["provider_key"], [])) == 1 and _acts(found[0]):
                return row
        return None

    async def _past(
        self,
        connection: AsyncConnection[dict[str, Any]],
        table: str,
        trigger: str,
        statement: str,
        values: dict[str, Any],
    ) -> None:
        # One transaction: no other session ever sees the table without its trigger.
        switch = psycopg.sql.SQL("ALTER TABLE idem.{} {} TRIGGER {}")
        names = psycopg.sql.Identifier(table), psycopg.sql.Identifier(trigger)
        await connection.execute(switch.format(names[0], psycopg.sql.SQL("DISABLE"), names[1]))
        done = await connection.execute(statement.encode(), values)
        if done.rowcount < 1:
            raise psycopg.errors.NoDataFound("the victim has moved on")
        await connection.execute(switch.format(names[0], psycopg.sql.SQL("ENABLE"), names[1]))

    async def _one(
        self, connection: AsyncConnection[dict[str, Any]], query: str, values: dict[str, Any]
    ) -> dict[str, Any] | None:
        return await (await connection.execute(query.encode(), values)).fetchone()


def _victim(row: dict[str, Any]) -> Victim:
    return Victim(str(row["intent_id"]), row["key"])


def _acts(send: Request) -> bool:
    return send.effect == "made" or (send.fault or "").startswith("stall_before_acting")


def _by_reference(sends: Sequence[Request]) -> dict[str, list[Request]]:
    grouped: dict[str, list[Request]] = {}
    for send in sends:
        grouped.setdefault(send.reference or "", []).append(send)
    return grouped


UNKNOWN_OF = """
SELECT o.id, o.intent_id, n.idempotency_key AS key, o.provider_key::text
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.provider = %(provider)s AND o.status = 'unknown' AND o.claim_token IS NULL AND {condition}
 ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
"""
BACK_TO_QUEUE = """
UPDATE idem.outbox SET status = 'pending', first_sent_at = NULL, available_at = statement_timestamp()
 WHERE id = %(id)s AND status = 'unknown' AND claim_token IS NULL
"""
OPEN_ROW = """
SELECT o.id, o.intent_id, n.idempotency_key AS key
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.status = 'unknown' AND o.claim_token IS NULL ORDER BY o.id LIMIT 1 FOR UPDATE OF o SKIP LOCKED
"""
LOSE = "DELETE FROM idem.outbox WHERE id = %(id)s"
SEEN_ANSWER = """
SELECT k.intent_id, k.idempotency_key AS key FROM idem.idempotency_keys k
 WHERE k.intent_id = ANY (%(intents)s::uuid[]) AND k.state = 'completed'
 ORDER BY k.completed_at DESC LIMIT 1
"""
REWRITE = """
UPDATE idem.idempotency_keys SET response_body = response_body || '\\x20'::bytea WHERE intent_id = %(id)s
"""
BELIEVE = tuple(
    statement.encode()
    for statement in (
        """
        INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, outcome, from_state, to_state,
                                   from_status, to_status)
        SELECT intent_id, id, step, attempt, 'reconciler', 'look', 'absent', 'unknown', 'failed_retryable',
               'unknown', 'held' FROM idem.outbox WHERE id = %(id)s
        """,
        "UPDATE idem.outbox SET status = 'held', first_sent_at = NULL WHERE id = %(id)s AND status = 'unknown'",
        """
        UPDATE idem.outbox SET status = 'pending', available_at = statement_timestamp(), redrives = redrives + 1
         WHERE id = %(id)s
        """,
        "UPDATE idem.idempotency_keys SET state = 'failed_retryable' WHERE intent_id = %(intent)s",
        "UPDATE idem.idempotency_keys SET state = 'in_progress' WHERE intent_id = %(intent)s",
        "UPDATE idem.intents SET state = 'failed_retryable', version = version + 1 WHERE id = %(intent)s",
        "UPDATE idem.intents SET state = 'in_progress', version = version + 1 WHERE id = %(intent)s",
        "SELECT pg_sleep(0.002)",  # the next row of evidence is to have a later id
        """
        INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, from_state, to_state,
                                   from_status, to_status)
        SELECT intent_id, id, step, attempt, 'reconciler', 'redrive', 'failed_retryable', 'in_progress',
               'held', 'pending' FROM idem.outbox WHERE id = %(id)s
        """,
    )
)
SETTLED = """
SELECT n.id AS intent_id, n.idempotency_key AS key FROM idem.intents n
 WHERE n.state = 'completed' ORDER BY n.settled_at DESC LIMIT 1
"""
FORGET = "DELETE FROM idem.evidence WHERE intent_id = %(id)s AND to_state = 'completed'"
