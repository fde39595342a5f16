"""The statement of the commonest end writes what the gate writes, and leaves to the gate what it does not know."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fix_spine import Spine
from fix_steps import claim_one, report

from idem import Answer
from idem.outbox.domain.outcomes import Outcome
from idem.outbox.settle import gate
from idem.outbox.settle.commonest import complete_succeeded
from idem.outbox.settle.report import Report
from idem.outcomes import Ambiguous, NotExecuted, Pending, Refused, Succeeded

OF_ITS_OWN = {
    "id", "intent_id", "outbox_id", "aggregateid", "idempotency_key", "fingerprint", "token", "requested_at",
    "created_at", "at", "settled_at", "completed_at", "expires_at", "claimed_at", "claimed_until",
}  # fmt: skip
"""Columns in which two calls of the same operation differ."""
LONG = 10_000_000.0
"""Seconds for which the answers live: longer than the keys do before they have one."""
HEADERS = [{"content-type": "application/json"}, {}, {"X-Of": 'a "quoted" \\ value', "Idempotent-Answer-Version": "3"}]


async def written(spine: Spine, intent: UUID) -> dict[str, Any]:
    """All that is on record of an intent, but for what is of its own."""
    found: dict[str, Any] = {}
    for table, column in (
        ("idempotency_keys", "intent_id"), ("intents", "id"), ("evidence", "intent_id"), ("events", "aggregateid"),
        ("outbox", "intent_id"), ("provider_answers", "intent_id"), ("dead_letters", "intent_id"),
    ):  # fmt: skip
        rows = await spine.all(f"SELECT * FROM idem.{table} WHERE {column} = %(intent)s", intent=intent)
        found[table] = [
            {name: value for name, value in row.items() if name not in OF_ITS_OWN}
            | {name: row[name] is None for name in OF_ITS_OWN & row.keys()}
            for row in rows
        ]
    for event in found["events"]:
        event["payload"] = {name: value for name, value in event["payload"].items() if name != "intent"}
    return found


async def lives_for(spine: Spine, intent: UUID) -> float:
    [row] = await spine.all(
        "SELECT extract(epoch FROM expires_at - completed_at)::float8 AS lives FROM idem.idempotency_keys"
        " WHERE intent_id = %(intent)s", intent=intent,
    )  # fmt: skip
    return float(row["lives"])


async def one(spine: Spine, key: str, outcome: Outcome, **more: Any) -> tuple[UUID, Report]:
    intent = spine.accepted(key)
    reported = report(spine, await claim_one(spine, "keyed"), outcome)
    terms = replace(reported.terms, operation=replace(reported.terms.operation, answer_ttl=LONG))
    return intent, replace(reported, terms=terms, **more)


@pytest.mark.parametrize("headers", HEADERS, ids=["plain", "none", "unusual"])
@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded("pay_1", "paid", {"amount": 5}),
        Succeeded(None),
        Succeeded("pay_\x00\ud800", "s" * 300, {"n\x00": [1, None]}),
    ],
    ids=["usual", "nothing known", "hostile"],
)
async def test_both_write_the_same(spine: Spine, outcome: Succeeded, headers: dict[str, str]) -> None:
    answer = Answer(201, b'{"payment": 1}', headers)
    first, narrow = await one(spine, "narrow", outcome, answer=answer)
    second, general = await one(spine, "general", outcome, answer=answer)
    async with spine.database.connection() as connection:
        assert await complete_succeeded(connection, [narrow]) == {narrow.row.id}
        assert await gate.write(connection, [general.change()]) == {general.row.id}
    assert await written(spine, first) == await written(spine, second)
    assert await lives_for(spine, first) == await lives_for(spine, second) == LONG
    assert (await spine.key(first))["state"] == "completed"


@pytest.mark.parametrize(
    "outcome",
    [Refused("pay_1"), Pending("pay_1"), Ambiguous(), NotExecuted("transport"), Succeeded("pay_1", interim=True)],
)
async def test_another_end_is_left_to_the_gate(spine: Spine, outcome: Any) -> None:
    _, reported = await one(spine, "k", outcome, interim={"a": 1})
    async with spine.database.connection() as connection:
        assert await complete_succeeded(connection, [reported]) == set()


FORCED = {
    "an entry is open": "INSERT INTO idem.dead_letters (intent_id, reason) VALUES (%(i)s, 'conflict')",
    "a proof is stored": "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome)"
                         " SELECT id, intent_id, 'webhook', 'hint' FROM idem.outbox WHERE intent_id = %(i)s",
    "the row is doubted": "INSERT INTO idem.doubts (outbox_id, details)"
                          " SELECT id, '{}' FROM idem.outbox WHERE intent_id = %(i)s",
    "it was decided before": "UPDATE idem.intents SET version = 2 WHERE id = %(i)s",
    "the key is not in progress": "UPDATE idem.idempotency_keys SET state = 'unknown' WHERE intent_id = %(i)s",
    "the key is gone": "DELETE FROM idem.idempotency_keys WHERE intent_id = %(i)s",
    "another claim": "UPDATE idem.outbox SET claim_token = gen_random_uuid() WHERE intent_id = %(i)s",
    "another attempt": "UPDATE idem.outbox SET attempt = 7 WHERE intent_id = %(i)s",
    "it was swept": "UPDATE idem.outbox SET status = 'unknown' WHERE intent_id = %(i)s",
    "it has an order": "UPDATE idem.outbox SET ordering_group = 'g', ordering_key = 'k', ordering_number = 1"
                       " WHERE intent_id = %(i)s",
    "it is a step": "UPDATE idem.outbox SET step_name = 's' WHERE intent_id = %(i)s",
}  # fmt: skip


@pytest.mark.parametrize("why", FORCED)
async def test_what_it_does_not_know_is_left_as_it_is(spine: Spine, why: str) -> None:
    """Another row of the batch may be settled with it, unless the statement is undone: the gate takes both then."""
    intent, reported = await one(spine, "odd", Succeeded("pay_1"))
    await spine.forced(FORCED[why], i=intent)
    _, usual = await one(spine, "usual", Succeeded("pay_2"))
    before = await written(spine, intent)
    async with spine.database.connection() as connection:
        done = await complete_succeeded(connection, [reported, usual])
    assert done == (set() if why.startswith("the key") else {usual.row.id})
    assert await written(spine, intent) == before


@contextlib.asynccontextmanager
async def held(spine: Spine, statement: str, intent: UUID) -> AsyncIterator[None]:
    async with await psycopg.AsyncConnection.connect(spine.url) as other:
        await other.execute(statement, {"i": intent})
        yield
        await other.rollback()


@pytest.mark.parametrize(
    "lock",
    [
        "SELECT FROM idem.outbox WHERE intent_id = %(i)s FOR UPDATE",
        "SELECT FROM idem.intents WHERE id = %(i)s FOR UPDATE",
        "SELECT FROM idem.idempotency_keys WHERE intent_id = %(i)s FOR UPDATE",
        "LOCK TABLE idem.idempotency_keys IN EXCLUSIVE MODE",
    ],
)
async def test_what_another_session_holds_is_left_to_the_gate(spine: Spine, lock: str) -> None:
    intent, reported = await one(spine, "held", Succeeded("pay_1"))
    async with spine.database.connection() as connection:
        async with held(spine, lock, intent):
            assert await complete_succeeded(connection, [reported]) == set()
        assert await complete_succeeded(connection, [reported]) == {reported.row.id}
        # The short patience was that statement's alone.
        assert await (await connection.execute("SHOW lock_timeout")).fetchone() != ("10ms",)


async def test_a_report_that_is_written_twice_is_left_to_the_gate(spine: Spine) -> None:
    """The answer to the first COMMIT was lost."""
    _, reported = await one(spine, "twice", Succeeded("pay_1"))
    async with spine.database.connection() as connection:
        assert await complete_succeeded(connection, [reported]) == {reported.row.id}
        assert await complete_succeeded(connection, [reported]) == set()
