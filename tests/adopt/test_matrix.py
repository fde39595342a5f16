"""Every kind of connection, every isolation, every end of a transaction: all or nothing, and no 202 for nothing."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from adopt.proof_line import Cut, cuttable
from adopt.proof_ways import ASYNC, ISOLATIONS, SYNC, Rows, Run, Told, Undo, request
from adopt.shop import define
from fix_sql import engine_of
from fix_waiting import until_it_holds
from sqlalchemy.orm import Session

from idem import StoreUnavailable
from idem.errors import NotStored, OutOfOrder

TABLES = """
CREATE TABLE bought (key text PRIMARY KEY);
CREATE TABLE promised (key text PRIMARY KEY);
CREATE TABLE kept (key text REFERENCES promised DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE shift (doctor text);
"""
BOUND = 20.0
Asking = Callable[[str, Rows], Told]


class Desk:
    """One way to ask, and a look at what is stored, past every line that may be cut."""

    def __init__(self, way: str, isolation: str, charge: Any, line: Cut, admin: psycopg.Connection) -> None:
        self.way, self.isolation = way, isolation
        self.charge, self.line, self.admin = charge, line, admin

    def ask(self, key: str, rows: Rows | None = None) -> Told:
        return request(self.way, self.charge, self.line.url, self.isolation, key, rows or Rows())

    def stored(self, key: str) -> bool:
        """Whether the rows of this key are there: theirs and ours, all or nothing."""
        found = self.admin.execute(
            """SELECT (SELECT count(*) FROM bought WHERE key = %(key)s),
                      (SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = %(key)s),
                      (SELECT count(*) FROM idem.intents WHERE idempotency_key = %(key)s),
                      (SELECT count(*) FROM idem.outbox o JOIN idem.intents i ON i.id = o.intent_id
                        WHERE i.idempotency_key = %(key)s AND o.status = 'pending'),
                      (SELECT count(*) FROM idem.requests r JOIN idem.intents i ON i.id = r.intent_id
                        WHERE i.idempotency_key = %(key)s)""",
            {"key": key},
        ).fetchone()
        assert found in ((0, 0, 0, 0, 0), (1, 1, 1, 1, 1)), (key, found)
        return found[0] == 1

    def settles(self, key: str, told: Told, *, stored: bool) -> None:
        """A request that failed: nothing was promised that is not there, and its retry comes to exactly one intent."""
        assert self.stored(key) is stored, (key, told)
        if not stored:
            assert told.status is None, told
        again = self.ask(key)
        until = time.monotonic() + BOUND
        # A server notices a line that was cut a moment later: till then somebody is at this key.
        while again.status == 409 and not self.stored(key) and time.monotonic() < until:
            time.sleep(0.05)
            again = self.ask(key)
        assert again.status == (409 if stored else 202), again
        assert again.failed is None
        assert self.stored(key)
        assert self.ask(key).status == 409
        assert self.stored(key)


@pytest.fixture(params=[*SYNC, *ASYNC])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def desk(way: str, isolation: str, db_url: str, idem_toml: Path) -> Iterator[Desk]:
    _, charge = define(idem_toml)
    with psycopg.connect(db_url, autocommit=True) as admin, cuttable(db_url) as line:
        admin.execute(TABLES)
        yield Desk(way, isolation, charge, line, admin)


@pytest.mark.sample(4)
def test_it_is_all_or_nothing_however_the_transaction_ends(desk: Desk) -> None:
    told = desk.ask("commits")
    assert told.failed is None and told.status == 202, told
    assert desk.stored("commits")
    assert desk.ask("commits").status == 409

    told = desk.ask("undone", Rows(last=_undo))
    assert isinstance(told.failed, Undo) and isinstance(told.answer, NotStored), told
    desk.settles("undone", told, stored=False)

    told = desk.ask("refused", Rows(last=_break_a_promise))
    assert told.failed is not None and isinstance(told.answer, NotStored), told
    desk.settles("refused", told, stored=False)

    told = desk.ask("ended", Rows(last=lambda run: _terminate(desk, run)))
    assert told.failed is not None and isinstance(told.answer, NotStored | StoreUnavailable), told
    desk.settles("ended", told, stored=False)

    for cut in ("before", "after"):
        told = desk.ask(f"cut-{cut}", Rows(last=lambda run, cut=cut: _cut(desk, cut)))  # type: ignore[misc]
        assert desk.line.at is None, "the line was not cut"
        assert told.failed is not None, told
        if cut == "before":
            assert isinstance(told.answer, NotStored | StoreUnavailable), told
        else:
            assert told.status == 202 or isinstance(told.answer, StoreUnavailable), told
        desk.settles(f"cut-{cut}", told, stored=cut == "after")


@pytest.mark.sample(4)
def test_it_is_all_or_nothing_inside_a_savepoint(desk: Desk) -> None:
    told = desk.ask("released", Rows(savepoint="released"))
    assert told.failed is None and told.status == 202, told
    assert desk.stored("released")

    told = desk.ask("taken-back", Rows(savepoint="rolled back"))
    assert told.failed is None and isinstance(told.answer, NotStored), told
    desk.settles("taken-back", told, stored=False)

    told = desk.ask("released-undone", Rows(savepoint="released", last=_undo))
    assert isinstance(told.answer, NotStored), told
    desk.settles("released-undone", told, stored=False)

    told = desk.ask("released-refused", Rows(savepoint="released", last=_break_a_promise))
    assert isinstance(told.answer, NotStored), told
    desk.settles("released-refused", told, stored=False)


def test_a_conflict_at_commit_takes_everything_with_it(way: str, db_url: str, idem_toml: Path) -> None:
    _, charge = define(idem_toml)
    with psycopg.connect(db_url, autocommit=True) as admin, psycopg.connect(db_url) as other:
        admin.execute(TABLES)
        other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        desk = Desk(way, "SERIALIZABLE", charge, Cut(db_url), admin)

        def read(run: Run) -> None:
            other.execute("SELECT count(*) FROM shift")
            run("SELECT count(*) FROM shift")

        def write(run: Run) -> None:
            run("INSERT INTO shift VALUES ('ours')")
            other.execute("INSERT INTO shift VALUES ('theirs')")
            other.commit()

        rows = Rows(first=read, last=write)
        told = desk.ask("skewed", rows)
        assert rows.seen == [True]
        assert "serialize" in str(told.failed), told
        assert isinstance(told.answer, NotStored), told
        desk.settles("skewed", told, stored=False)


def test_a_key_is_reserved_anew_where_the_transaction_is_run_again(db_url: str, idem_toml: Path) -> None:
    """The loop that SERIALIZABLE asks for, around one call."""
    _, charge = define(idem_toml)
    call = charge.begin(key="again", path="/orders")
    with Session(engine_of(db_url)) as db:
        with pytest.raises(Undo), db.begin():
            assert call.reserve(db)
            call.submit(db, {"amount": 1, "currency": "eur"})
            raise Undo
        with db.begin():
            assert call.reserve(db)
            with pytest.raises(OutOfOrder, match="second time"):
                call.reserve(db)
            call.submit(db, {"amount": 1, "currency": "eur"})
        assert call.answer().status == 202
        with db.begin():
            assert not call.reserve(db)


def _undo(run: Run) -> None:
    raise Undo


def _break_a_promise(run: Run) -> None:
    run(f"INSERT INTO kept VALUES ('{uuid4()}')")


def _terminate(desk: Desk, run: Run) -> None:
    pid = run("SELECT pg_backend_pid()")
    desk.admin.execute("SELECT pg_terminate_backend(%s)", [pid])
    until_it_holds(lambda: not desk.admin.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone())


def _cut(desk: Desk, at: str) -> None:
    desk.line.at = at
