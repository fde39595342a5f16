"""Breaks one rule on purpose, from outside: as the owner of the schema, without triggers and without idem's code.

Each sabotage waits for a victim, strikes once and reports the intent. It does what a bug or a person with psql could
do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, TypeAlias, assert_never

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.cli.demo import sabotage_flows
from idem.cli.demo.clients import Clients
from idem.cli.demo.scenario import KEYLESS
from idem.cli.demo.settings import FLOW_SABOTAGES, Sabotage
from idem.outbox.database import session
from idem.testing.bank import Request, read_log

POLL = 0.1
STEP_POLL = 0.01
"""A step of a flow waits for milliseconds only."""

DictConnection: TypeAlias = AsyncConnection[dict[str, Any]]
DictRow: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Victim:
    """The intent whose rule was broken."""

    intent: str
    key: str


class Saboteur:
    """Strikes once; `victim` is None until then."""

    def __init__(self, sabotage: Sabotage, url: str, bank_log: Path, clients: Clients) -> None:
        self.sabotage = sabotage
        self.victim: Victim | None = None
        self._url = url
        self._bank_log = bank_log
        self._clients = clients

    async def run(self) -> None:
        """Run until it has struck."""
        while self.victim is None:
            try:
                line = await session.connect(self._url, name="idem demo", row_factory=dict_row)
                async with line as connection, connection.transaction():
                    await connection.execute("SET LOCAL lock_timeout = '2s'")
                    row = await self._strike(connection)
                if row is not None:
                    self.victim = Victim(str(row["intent_id"]), row["key"])
            except psycopg.Error:
                # Another session locked the row or the table: try again later.
                pass
            await asyncio.sleep(STEP_POLL if self.sabotage in FLOW_SABOTAGES else POLL)

    async def _strike(self, connection: DictConnection) -> DictRow | None:
        row = await self._find(connection)
        if row is not None and self.sabotage is Sabotage.BELIEVE_ABSENT:
            # A reconciler without quiet time and horizon would write this after its first look-up that shows nothing.
            for statement in BELIEVE:
                await connection.execute(statement, row)
        elif row is not None and self.sabotage in FLOW_SABOTAGES:
            for blow in sabotage_flows.BLOWS[self.sabotage]:
                await _past(connection, blow.past, blow.statement, row)
        elif row is not None:
            table, trigger, statement = BROKEN[self.sabotage]
            await _past(connection, (table, trigger), statement, row)
        return row

    async def _find(self, connection: DictConnection) -> DictRow | None:
        match self.sabotage:
            case Sabotage.BLIND_RESEND:
                return await _unknown_of_old_bank(connection, self._bank_log, absences=0)
            case Sabotage.BELIEVE_ABSENT:
                return await _unknown_of_old_bank(connection, self._bank_log, absences=1)
            case Sabotage.LOSE_ROW:
                return await _one(connection, OPEN_ROW, {})
            case Sabotage.REWRITE_ANSWER:
                return await _one(connection, SEEN_ANSWER, {"intents": list(self._clients.answered.values())})
            case Sabotage.SKIP_EVIDENCE:
                return await _one(connection, SETTLED, {})
            case Sabotage.REPEAT_STEP | Sabotage.SHARE_KEY | Sabotage.SKIP_UNDO:
                query, values = sabotage_flows.FIND[self.sabotage]
                return await _one(connection, query, {**values})
            case _ as unlisted:
                assert_never(unlisted)


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
UPDATE idem.idempotency_keys SET response_body = response_body || '\\x20'::bytea WHERE intent_id = %(intent_id)s
"""
BELIEVE: tuple[LiteralString, ...] = (
    """
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, outcome, from_state, to_state,
                               from_status, to_status)
    SELECT intent_id, id, step, attempt, 'reconciler', 'lookup', 'absent', 'unknown', 'failed_retryable',
           'unknown', 'held' FROM idem.outbox WHERE id = %(id)s
    """,
    "UPDATE idem.outbox SET status = 'held', first_sent_at = NULL WHERE id = %(id)s AND status = 'unknown'",
    """
    UPDATE idem.outbox SET status = 'pending', available_at = statement_timestamp(), redrives = redrives + 1
     WHERE id = %(id)s
    """,
    "UPDATE idem.idempotency_keys SET state = 'failed_retryable' WHERE intent_id = %(intent_id)s",
    "UPDATE idem.idempotency_keys SET state = 'in_progress' WHERE intent_id = %(intent_id)s",
    "UPDATE idem.intents SET state = 'failed_retryable', version = version + 1 WHERE id = %(intent_id)s",
    "UPDATE idem.intents SET state = 'in_progress', version = version + 1 WHERE id = %(intent_id)s",
    "SELECT pg_sleep(0.002)",  # gives the next row of evidence a later id
    """
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, from_state, to_state,
                               from_status, to_status)
    SELECT intent_id, id, step, attempt, 'reconciler', 'redrive', 'failed_retryable', 'in_progress',
           'held', 'pending' FROM idem.outbox WHERE id = %(id)s
    """,
)
SETTLED = """
SELECT n.id AS intent_id, n.idempotency_key AS key FROM idem.intents n
 WHERE n.state = 'completed' ORDER BY n.settled_at DESC LIMIT 1
"""
FORGET = "DELETE FROM idem.evidence WHERE intent_id = %(intent_id)s AND to_state = 'completed'"

BROKEN: Mapping[Sabotage, tuple[str, str, LiteralString]] = {
    # A lease-and-retry library puts an unknown row back like this.
    Sabotage.BLIND_RESEND: ("outbox", "outbox_transition_is_listed", BACK_TO_QUEUE),
    Sabotage.LOSE_ROW: ("outbox", "outbox_row_leaves_when_done", LOSE),
    Sabotage.REWRITE_ANSWER: ("idempotency_keys", "stored_answer_is_immutable", REWRITE),
    Sabotage.SKIP_EVIDENCE: ("evidence", "evidence_is_kept", FORGET),
}
"""The table, the trigger that protects it, and the statement that breaks the rule for the victim."""


UNKNOWN = """
SELECT o.id, o.intent_id, n.idempotency_key AS key, o.provider_key::text
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.provider = %(provider)s AND o.status = 'unknown' AND o.claim_token IS NULL AND o.absences >= %(absences)s
 ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
"""


async def _unknown_of_old_bank(connection: DictConnection, bank_log: Path, *, absences: int) -> DictRow | None:
    """An unknown row whose payment the bank has made or will make, so that a second send does harm."""
    rows = await (await connection.execute(UNKNOWN, {"provider": KEYLESS, "absences": absences})).fetchall()
    sends = _by_reference(read_log(bank_log).sends(account=KEYLESS)) if rows else {}
    for row in rows:
        if len(found := sends.get(row["provider_key"], [])) == 1 and _acts(found[0]):
            return row
    return None


SWITCH = "ALTER TABLE idem.{} {} TRIGGER {}"


async def _past(
    connection: DictConnection, trigger: tuple[str, str] | None, statement: LiteralString, values: DictRow
) -> None:
    # One transaction: no other session ever sees the table without its trigger.
    switch = psycopg.sql.SQL(SWITCH)
    names = [] if trigger is None else [psycopg.sql.Identifier(name) for name in trigger]
    if names:
        await connection.execute(switch.format(names[0], psycopg.sql.SQL("DISABLE"), names[1]))
    done = await connection.execute(statement, values)
    if done.rowcount < 1:
        raise psycopg.errors.NoDataFound("the victim has moved on")
    if names:
        await connection.execute(switch.format(names[0], psycopg.sql.SQL("ENABLE"), names[1]))


async def _one(connection: DictConnection, query: LiteralString, values: DictRow) -> DictRow | None:
    return await (await connection.execute(query, values)).fetchone()


def _acts(send: Request) -> bool:
    return send.effect == "made" or (send.fault or "").startswith("stall_before_acting")


def _by_reference(sends: Sequence[Request]) -> dict[str, list[Request]]:
    grouped: dict[str, list[Request]] = {}
    for send in sends:
        grouped.setdefault(send.reference or "", []).append(send)
    return grouped
