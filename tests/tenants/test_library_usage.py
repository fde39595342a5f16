"""What accept decides in a user's own application, and by SQL, is counted: for its tenant, and in the metric."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from adopt.proof_ways import ASYNC, SYNC, Rows, request
from adopt.shop import define
from fix_accept import Acceptor
from fix_spine import Spine, catalogue
from fix_sql import engine_of, forced, query
from fix_tables import Tables
from inline import buying
from producers.application import accept, synced
from prometheus_client import REGISTRY

from idem import Answer
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.sweeper.daemon import Sweeper

USAGE = """
SELECT sum(requests)::int AS requests, sum(created)::int AS created, sum(replayed)::int AS replayed,
       sum(mismatch)::int AS mismatch, sum(expired_reuse)::int AS expired_reuse
  FROM idem.tenant_usage WHERE tenant_id = %(t)s
"""


def counted(operation: str, decision: str) -> float:
    return REGISTRY.get_sample_value("idem_accepts_total", {"operation": operation, "decision": decision}) or 0.0


async def usage(database: Database, known: Catalogue, tenant: str) -> dict[str, int | None]:
    """What this tenant did, once a sweeper has added it up; nothing is left to add."""
    await Sweeper(database, known).run_once()
    assert await Tables(database).lacks("FROM idem.decisions_to_count")
    return await Tables(database).one(USAGE, t=tenant)


@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
async def test_reserve_is_counted_on_any_connection(database: Database, db_url: str, idem_toml: Path, way: str) -> None:
    query(db_url, "CREATE TABLE bought (key text PRIMARY KEY)")
    _, charge = define(idem_toml)
    before = {each: counted("payments.create", each) for each in ("accepted", "in_progress")}
    for _ in range(3):
        await asyncio.to_thread(request, way, charge, db_url, "READ COMMITTED", "k", Rows())
    found = await usage(database, catalogue("http://127.0.0.1:9"), "acme")
    assert found == {"requests": 3, "created": 1, "replayed": 0, "mismatch": 0, "expired_reuse": 0}
    after = {each: counted("payments.create", each) - before[each] for each in before}
    assert after == {"accepted": 1.0, "in_progress": 2.0}


async def test_accept_of_the_library_and_of_sql_counts_each_decision(database: Database, db_url: str) -> None:
    known = catalogue("http://127.0.0.1:9")
    acceptor = Acceptor(known.operations, known.providers)
    await asyncio.to_thread(synced, db_url, known)
    engine = engine_of(db_url)

    def library(key: str, amount: int) -> None:
        with engine.begin() as connection:
            acceptor.accept(connection, "t", "pay.keyed", key, {"amount": amount})

    def by_sql(key: str, amount: int) -> None:
        with psycopg.connect(db_url) as connection:
            accept(connection, key, {"amount": amount})

    ways: tuple[Callable[[str, int], None], ...] = (library, by_sql)
    expected = dict.fromkeys(("requests", "created", "replayed", "mismatch", "expired_reuse"), 0)
    for number, way in enumerate(ways):
        key = f"k{number}"
        for amount in (100, 100, 7):
            way(key, amount)
        for state in ("completed", "expired"):
            forced(
                db_url,
                "UPDATE idem.idempotency_keys SET state = %(s)s, completed_at = now(),"
                " response_status = CASE %(s)s WHEN 'completed' THEN 200 END,"
                " response_headers = CASE %(s)s WHEN 'completed' THEN '{}'::jsonb END,"
                " response_body = CASE %(s)s WHEN 'completed' THEN ''::bytea END WHERE idempotency_key = %(k)s",
                {"s": state, "k": key},
            )
            way(key, 100)
        for what, more in (("requests", 5), ("created", 1), ("replayed", 1), ("mismatch", 1), ("expired_reuse", 1)):
            expected[what] += more
        assert await usage(database, known, "t") == expected, way


async def test_complete_and_its_replays_are_counted(database: Database, db_url: str, idem_toml: Path) -> None:
    idem, _ = define(idem_toml)
    note = idem.operation("notes.create", key_ttl="72h")
    for body in ({"a": 1}, {"a": 1}, {"a": 2}):
        call = note.begin(key="k", tenant="acme", body=body)
        with psycopg.connect(db_url) as db:
            if call.reserve(db):
                call.complete(db, Answer(201, {}))
    found = await usage(database, catalogue("http://127.0.0.1:9"), "acme")
    assert found == {"requests": 3, "created": 1, "replayed": 1, "mismatch": 1, "expired_reuse": 0}


async def test_an_inline_call_is_counted_once(spine: Spine) -> None:
    shop = buying.shop(spine)
    before = {each: counted("buy.keyed", each) for each in ("accepted", "in_progress", "mismatch")}
    async with shop.runs:
        await shop.run("k")
        await shop.begin("k")
        await shop.begin("k", 7)
        found = await usage(spine.database, shop.known, "t")
    assert found == {"requests": 3, "created": 1, "replayed": 0, "mismatch": 1, "expired_reuse": 0}
    assert {each: counted("buy.keyed", each) - before[each] for each in before} == {
        "accepted": 1.0, "in_progress": 1.0, "mismatch": 1.0,
    }  # fmt: skip


async def test_what_was_rolled_back_is_not_counted_and_nobody_waits(database: Database, db_url: str) -> None:
    """Two transactions of one tenant count at once; a sweeper that adds up meanwhile waits for neither."""
    known = catalogue("http://127.0.0.1:9")
    await asyncio.to_thread(synced, db_url, known)
    with psycopg.connect(db_url) as one, psycopg.connect(db_url) as other:
        for connection in (one, other):
            connection.execute("SET lock_timeout = '2s'")
            connection.commit()
        accept(one, "k1")
        accept(other, "k2")
        assert (await usage(database, known, "t"))["requests"] is None
        one.commit()
        other.rollback()
    assert (await usage(database, known, "t"))["requests"] == 1


async def test_two_sweepers_add_each_decision_once(database: Database, db_url: str) -> None:
    known = catalogue("http://127.0.0.1:9")
    query(
        db_url,
        "INSERT INTO idem.decisions_to_count (tenant_id, operation, decision)"
        " SELECT 't' || n % 7, 'pay', 'replay' FROM generate_series(1, 5000) AS n",
    )
    await asyncio.gather(*(Sweeper(database, known).run_once() for _ in range(3)))
    await Sweeper(database, known).run_once()
    assert query(db_url, "SELECT sum(requests)::int, sum(replayed)::int FROM idem.tenant_usage") == [(5000, 5000)]
    assert query(db_url, "SELECT FROM idem.decisions_to_count") == []


def test_a_session_that_may_write_nothing_is_told_a_replay(db_url: str, idem_toml: Path) -> None:
    idem, _ = define(idem_toml)
    note = idem.operation("notes.create", key_ttl="72h")
    for options in ("", "-c default_transaction_read_only=on"):
        call = note.begin(key="k", tenant="acme", body={"a": 1})
        with psycopg.connect(db_url, options=options) as db:
            assert call.reserve(db) is (not options)
            if not options:
                call.complete(db, Answer(201, {"a": 1}))
            db.commit()
            assert call.answer().status == 201
