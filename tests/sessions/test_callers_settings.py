"""Whatever a caller's session is set to, a request comes to the same decision, or to an error with nothing written."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from adopt.proof_ways import ASYNC, SYNC, Rows, request
from adopt.shop import define
from fix_accept import Acceptor
from fix_spine import catalogue
from fix_sql import engine_of, query
from producers.application import synced
from schema.conftest import installed, installed_once, roles  # noqa: F401
from schema.databases import Installed
from sessions.conftest import Alter
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from idem import Answer, StoreUnavailable
from idem.decisions import Accepted, InProgress
from idem.errors import NotStored

WAYS = pytest.mark.parametrize("way", [*SYNC, *ASYNC])

SHADOWS = """
CREATE SCHEMA shadows;
CREATE FUNCTION shadows.statement_timestamp() RETURNS timestamptz LANGUAGE sql
    AS $$ SELECT '2001-01-01Z'::timestamptz $$;
CREATE FUNCTION shadows.gen_random_uuid() RETURNS uuid LANGUAGE sql
    AS $$ SELECT '00000000-0000-0000-0000-000000000001'::uuid $$;
CREATE FUNCTION shadows.jsonb_typeof(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'shadowed' $$;
GRANT USAGE ON SCHEMA shadows TO PUBLIC
"""
"""What a search_path that names pg_catalog last would find first."""

# Each at its worst; the text is what stands behind `SET name =`.
HARMLESS: list[tuple[str, str]] = [
    ("default_transaction_isolation", "'serializable'"),
    ("default_transaction_isolation", "'repeatable read'"),
    ("default_transaction_deferrable", "on"),
    ("search_path", "''"),
    ("search_path", "idem, pg_temp"),
    ("search_path", "shadows, public, pg_catalog"),
    ("TimeZone", "'Asia/Kathmandu'"),
    ("TimeZone", "'America/St_Johns'"),
    ("DateStyle", "'SQL, DMY'"),
    ("DateStyle", "'German'"),
    ("DateStyle", "'Postgres, MDY'"),
    ("IntervalStyle", "'iso_8601'"),
    ("IntervalStyle", "'sql_standard'"),
    ("plan_cache_mode", "force_generic_plan"),
    ("plan_cache_mode", "force_custom_plan"),
    ("row_security", "off"),
    ("standard_conforming_strings", "off"),
    ("backslash_quote", "off"),
    ("bytea_output", "'escape'"),
    ("extra_float_digits", "-15"),
    ("array_nulls", "off"),
    ("transform_null_equals", "on"),
    ("quote_all_identifiers", "on"),
    ("check_function_bodies", "off"),
    ("enable_indexscan", "off"),
    ("enable_seqscan", "off"),
    ("jit_above_cost", "0"),
    ("lock_timeout", "'1ms'"),
    ("lc_numeric", "'C'"),
    ("xmloption", "document"),
    ("client_min_messages", "debug5"),
    ("synchronous_commit", "off"),
]


@pytest.mark.parametrize("way", ["session", "psycopg", "django", "asyncpg-session"])
def test_a_request_comes_to_the_same_under_every_setting(
    shop_url: str, idem_toml: Path, alter: Alter, way: str
) -> None:
    _, charge = define(idem_toml)
    query(shop_url, SHADOWS)
    for number, (name, value) in enumerate(HARMLESS):
        alter(**{name: value})
        key, rows = f"k{number}", Rows()
        for status in (202, 409):
            told = request(way, charge, shop_url, "READ COMMITTED", key, _unqualified(rows))
            assert (told.failed, told.status) == (None, status), (name, value, told)
        assert rows.seen == [True, False], (name, value)
    with psycopg.connect(shop_url, options="-c datestyle=ISO") as look:
        kept = look.execute(
            "SELECT count(*), count(DISTINCT i.id), count(DISTINCT o.provider_key),"
            " bool_and(o.start_before > now() AND k.expires_at > now() + interval '71 h' AND r.body <> ''"
            ' AND i.params = \'{"amount": 100, "currency": "eur"}\')'
            " FROM idem.intents i JOIN idem.outbox o ON o.intent_id = i.id JOIN idem.requests r ON r.outbox_id = o.id"
            " JOIN idem.idempotency_keys k ON k.intent_id = i.id"
        ).fetchone()
    assert kept == (len(HARMLESS), len(HARMLESS), len(HARMLESS), True)


def test_row_security_hides_nothing_from_a_producer(installed: Installed) -> None:  # noqa: F811
    """Switched on for all tables by hand: what begins a call is written, and read back, by functions of the owner."""
    known = catalogue("http://127.0.0.1:9")
    acceptor = Acceptor(known.operations, known.providers)
    url = installed.url("producer").replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        acceptor.know(connection)
    with psycopg.connect(installed.superuser_url, autocommit=True) as own:
        for (name,) in own.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'idem'::regnamespace"
        ).fetchall():
            own.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
    for expected in (Accepted, InProgress):
        with engine.begin() as connection:
            assert isinstance(acceptor.accept(connection, "t", "pay.keyed", "k", {"amount": 1}), expected)


def _unqualified(rows: Rows) -> Rows:
    # The user's own table is found whatever the path is: this is about ours.
    rows.first = lambda run: run("CREATE TEMPORARY TABLE bought (key text) ON COMMIT DROP")
    return rows


ANSWER = Answer(201, {"note": "é", "amount": 1.5}, {"X-Note": "1"})


@pytest.mark.parametrize("kind", ["session", "psycopg", "asyncpg"])
def test_a_stored_answer_comes_back_the_same_under_every_setting(
    shop_url: str, idem_toml: Path, alter: Alter, kind: str
) -> None:
    idem, _ = define(idem_toml)
    note = idem.operation("notes.create", key_ttl="72h")
    query(shop_url, SHADOWS)
    first: tuple[Any, ...] | None = None
    for name, value in [("TimeZone", "'UTC'"), *HARMLESS]:
        alter(**{name: value})
        told = asyncio.run(_told(note, shop_url)) if kind == "asyncpg" else _told_sync(note, shop_url, kind)
        headers = {each: said for each, said in told.headers.items() if each != "Idempotent-Replayed"}
        first = first or (told.status, told.body, headers)
        assert (told.status, told.body, headers) == first, (name, value)


def _told_sync(note: Any, url: str, kind: str) -> Answer:
    call = note.begin(key="k", tenant="acme", body={"a": 1})
    if kind == "psycopg":
        with psycopg.connect(url) as db:
            if call.reserve(db):
                call.complete(db, ANSWER)
            db.commit()
            return call.answer()  # type: ignore[no-any-return]
    else:
        engine = engine_of(url)
        with Session(engine) as db, db.begin():
            if call.reserve(db):
                call.complete(db, ANSWER)
    return call.answer()  # type: ignore[no-any-return]


async def _told(note: Any, url: str) -> Answer:
    call = note.begin_async(key="k", tenant="acme", body={"a": 1})
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), poolclass=NullPool)
    async with AsyncSession(engine) as db, db.begin():
        if await call.reserve(db):
            await call.complete(db, ANSWER)
    return await call.answer()  # type: ignore[no-any-return]


BY_SQL = "SELECT d.decision FROM idem.accept('t', 'pay.keyed', %s, %s) AS d"


def test_sql_and_library_mean_the_same_wish_under_every_setting(shop_url: str, alter: Alter) -> None:
    known = catalogue("http://127.0.0.1:9")
    acceptor = Acceptor(known.operations, known.providers)
    synced(shop_url, known)
    query(shop_url, SHADOWS)
    engine = engine_of(shop_url)
    params = {"amount": 1500, "currency": "é😀\\x"}
    for number, (name, value) in enumerate(HARMLESS):
        alter(**{name: value})
        with psycopg.connect(shop_url) as connection:
            decided = connection.execute(BY_SQL, [f"k{number}", json.dumps(params)]).fetchone()
            assert decided == ("accepted",), (name, value)
        with engine.begin() as connection:
            again = acceptor.accept(connection, "t", "pay.keyed", f"k{number}", params)
        assert isinstance(again, InProgress), (name, value, again)


@WAYS
def test_a_session_that_may_write_nothing_is_a_store_that_is_away(
    shop_url: str, idem_toml: Path, alter: Alter, way: str
) -> None:
    _, charge = define(idem_toml)
    alter(default_transaction_read_only="on")
    told = request(way, charge, shop_url, "READ COMMITTED", "k", Rows())
    assert isinstance(told.failed, StoreUnavailable), told
    assert told.status is None
    _nothing(shop_url)


@WAYS
def test_a_statement_that_runs_out_of_time_is_a_store_that_is_away(
    shop_url: str, idem_toml: Path, alter: Alter, way: str
) -> None:
    _, charge = define(idem_toml)
    alter(statement_timeout="'500ms'")
    with psycopg.connect(shop_url, options="-c statement_timeout=0") as other:
        other.execute("LOCK TABLE idem.idempotency_keys IN ACCESS EXCLUSIVE MODE")
        told = request(way, charge, shop_url, "READ COMMITTED", "k", Rows())
        assert isinstance(told.failed, StoreUnavailable), told
    assert told.status is None
    _nothing(shop_url)
    alter()
    assert request(way, charge, shop_url, "READ COMMITTED", "k", Rows()).status == 202


@WAYS
def test_a_transaction_that_idles_too_long_writes_nothing(
    shop_url: str, idem_toml: Path, alter: Alter, way: str
) -> None:
    _, charge = define(idem_toml)
    alter(idle_in_transaction_session_timeout="'200ms'")
    told = request(way, charge, shop_url, "READ COMMITTED", "k", Rows(last=lambda run: time.sleep(1)))
    assert told.failed is not None and isinstance(told.answer, StoreUnavailable | NotStored), told
    _nothing(shop_url)


def _nothing(url: str) -> None:
    with psycopg.connect(url, options="-c statement_timeout=0") as look:
        found = look.execute(
            "SELECT (SELECT count(*) FROM idem.idempotency_keys), (SELECT count(*) FROM idem.intents),"
            " (SELECT count(*) FROM idem.outbox), (SELECT count(*) FROM public.bought)"
        ).fetchone()
    assert found == (0, 0, 0, 0)
