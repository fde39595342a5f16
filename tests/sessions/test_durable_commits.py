"""P1: what a commit that wrote to idem acknowledged survives a crash, whatever synchronous_commit the session has."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from adopt.proof_ways import ASYNC, SYNC, Rows, request
from adopt.shop import define
from fix_accept import Acceptor
from fix_spine import catalogue
from fix_sql import engine_of, query
from producers.application import accept, synced
from sessions.conftest import Alter, commits
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem import Answer
from idem.migrations import runner
from idem.testing.embedded import acquire

WAYS = pytest.mark.parametrize("way", [*SYNC, *ASYNC])
WRITTEN_AGAIN = {"alembic_version", "tenant_usage", "tenant_keys", "daemons", "decisions_to_count"}
"""Counts and heartbeats: what is lost of them is written again."""

BEGIN_BESIDE_ANOTHER = {"idempotency_keys", "intents", "outbox", "requests"}
"""The trigger of a new key looks at their INSERT, or it comes in one statement with a new key or an evidence row."""

GUARDED = """
SELECT c.relname, bool_or(t.tgname = 'commit_is_durable' AND t.tgdeferrable AND t.tginitdeferred AND t.tgenabled = 'O'
                          AND t.tgtype = 1 + 8 + 16 + CASE WHEN c.relname = ANY (%s) THEN 0 ELSE 4 END)
  FROM pg_class c LEFT JOIN pg_trigger t ON t.tgrelid = c.oid
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p') GROUP BY 1
"""


def test_every_table_that_a_promise_stands_in_commits_durably(shop_url: str) -> None:
    found = dict(query(shop_url, GUARDED, [sorted(BEGIN_BESIDE_ANOTHER)]))
    assert {name for name, guarded in found.items() if not guarded} == WRITTEN_AGAIN


@WAYS
@pytest.mark.parametrize("weak", ["off", "local"])
def test_reserve_and_submit_commit_durably(shop_url: str, idem_toml: Path, alter: Alter, way: str, weak: str) -> None:
    _, charge = define(idem_toml)
    alter(synchronous_commit=weak)
    off_again: Callable[[Any], None] = lambda run: run("SET LOCAL synchronous_commit = off")  # noqa: E731
    for key, rows in {
        "plain": Rows(),
        "savepoint": Rows(savepoint="released"),
        "off before": Rows(first=off_again),
        "off after": Rows(last=off_again),
        "at once": Rows(last=lambda run: run("SET CONSTRAINTS ALL IMMEDIATE")),
    }.items():
        told = request(way, charge, shop_url, "READ COMMITTED", key.replace(" ", "-"), rows)
        assert (told.failed, told.status) == (None, 202), (key, told)
        assert commits(shop_url, "relation = 'idempotency_keys'") == {"on"}, key
    assert query(shop_url, "SHOW synchronous_commit")[0] == (weak,)


@pytest.mark.parametrize("strong", ["on", "remote_write", "remote_apply"])
def test_what_is_stronger_stays(shop_url: str, idem_toml: Path, alter: Alter, strong: str) -> None:
    _, charge = define(idem_toml)
    alter(synchronous_commit=strong)
    assert request("psycopg", charge, shop_url, "READ COMMITTED", "k", Rows()).status == 202
    assert commits(shop_url) == {strong}


def test_complete_and_refuse_commit_durably(shop_url: str, idem_toml: Path, alter: Alter) -> None:
    idem, charge = define(idem_toml)
    note = idem.operation("notes.create", key_ttl="72h")
    alter(synchronous_commit="off")
    engine = engine_of(shop_url)
    for operation, end in ((note, "complete"), (charge, "refuse")):
        call = operation.begin(key="k", tenant="acme", body={"a": 1})
        with Session(engine) as db, db.begin():
            assert call.reserve(db)
            getattr(call, end)(db, Answer(422, {"done": True}))
        assert commits(shop_url) == {"on"}, end


ASIDE = """
CREATE FUNCTION public.pay(p_key text) RETURNS text LANGUAGE plpgsql SET synchronous_commit = off AS $$
DECLARE
    decided  idem.decision := idem.accept('t', 'pay.keyed', p_key, '{"amount": 100}');
BEGIN
    RETURN decided.decision;
END $$
"""


def test_accept_and_a_retry_commit_durably(shop_url: str, alter: Alter) -> None:
    """Of the library, of SQL, and of SQL in a function that turns durability off for itself."""
    known = catalogue("http://127.0.0.1:9")
    acceptor = Acceptor(known.operations, known.providers)
    synced(shop_url, known)
    alter(synchronous_commit="off")
    engine = engine_of(shop_url)
    query(shop_url, ASIDE)

    def library(key: str) -> str:
        with engine.begin() as connection:
            return type(acceptor.accept(connection, "t", "pay.keyed", key, {"amount": 100})).__name__.lower()

    def by_sql(key: str) -> str:
        with psycopg.connect(shop_url) as connection:
            return str(accept(connection, key).decision)

    def aside(key: str) -> str:
        with engine.begin() as connection:
            return str(connection.scalar(text("SELECT public.pay(:key)"), {"key": key}))

    commits(shop_url)
    for name, way in (("library", library), ("sql", by_sql), ("aside", aside)):
        assert way(name) == "accepted"
        assert commits(shop_url) == {"on"}, name
        with psycopg.connect(shop_url) as superuser:
            superuser.execute("SET session_replication_role = replica")
            superuser.execute("UPDATE idem.outbox SET status = 'held'")
            superuser.execute("UPDATE idem.intents SET state = 'failed_retryable'")
            superuser.execute("UPDATE idem.idempotency_keys SET state = 'failed_retryable'")
        commits(shop_url)
        assert way(name) == "retrying"
        assert commits(shop_url) == {"on"}, name


@pytest.mark.quick
@pytest.mark.process
@pytest.mark.parametrize("how", ["library", "sql"])
def test_an_accept_that_was_acknowledged_survives_the_server(tmp_path: Path, how: str) -> None:
    """The server is killed right after COMMIT was answered; nothing but the commit itself would write its log out."""
    home = tmp_path / "home"
    known = catalogue("http://127.0.0.1:9")
    with acquire(home, linger=0, durable=False) as server:
        runner.upgrade(server.url, environment="test")
        synced(server.url, known)
        with psycopg.connect(server.superuser_url, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            admin.execute("ALTER SYSTEM SET wal_writer_flush_after = '1GB'")
            admin.execute("SELECT pg_reload_conf()")
            admin.execute("ALTER DATABASE idem SET synchronous_commit = off")
        engine = engine_of(server.url)
        acceptor = Acceptor(known.operations, known.providers)
        with engine.connect() as connection:
            acceptor.know(connection)
            connection.rollback()
            # What wakes the writer of the log for a while is over.
            time.sleep(1)
            with connection.begin():
                if how == "library":
                    acceptor.accept(connection, "t", "pay.keyed", "k", {"amount": 1})
                else:
                    connection.execute(text("SELECT idem.accept('t', 'pay.keyed', 'k', '{\"amount\": 1}')"))
            os.kill(server.server_pid, signal.SIGKILL)
            connection.invalidate()
        engine.dispose()
        until = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(server.url, connect_timeout=5) as look:
                    assert look.execute("SELECT count(*) FROM idem.intents").fetchone() == (1,)
                break
            except psycopg.OperationalError:
                assert time.monotonic() < until
                time.sleep(0.1)
