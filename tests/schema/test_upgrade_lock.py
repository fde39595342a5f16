"""No wait for an advisory lock is without an end: any role that may connect can hold one, and the error names it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from fix_spine import Spine
from fix_sql import engine_of, query
from psycopg import sql
from schema.databases import as_role, new_database
from sqlalchemy import text

from idem.migrations import MigrationError, runner, upgrade_in, upgrade_lock
from idem.migrations.inside import script
from idem.outbox.accept import sql_operations

ROOT = Path(runner.__file__).parent.parent
# Where a statement waits for an advisory lock; each is tried below with a session that holds it. The order of a key is
# that of the commits: its wait is on purpose, as long as the caller's lock_timeout (tests/order/test_races.py).
ORDER = "migrations/versions/0001_order.sql"
BENCH = "cli/bench/database.py"
"""Waits for the turn of another `idem bench` on this server, for as long as that makes or drops a database."""
WAITING = {"migrations/inside.py", "migrations/runner.py", "migrations/upgrade_lock.py", ORDER, BENCH}
HOLD = f"SELECT pg_advisory_lock({upgrade_lock.UPGRADE_LOCK})"
NAMED = r"pid {pid}, role {role}, application 'nightly report', connected since \d{{4}}-\d\d-\d\d .*in its transaction"


@pytest.fixture
def holder(empty_database: str) -> Iterator[psycopg.Connection]:
    """Another session, which holds the lock of upgrades and does not give it back."""
    with psycopg.connect(empty_database, application_name="nightly report") as connection:
        connection.execute(HOLD)  # type: ignore[call-overload]
        yield connection


def named(holder: psycopg.Connection) -> str:
    return NAMED.format(pid=holder.info.backend_pid, role=re.escape(holder.info.user))


def test_every_statement_that_takes_an_advisory_lock_gives_up_or_is_tried_here() -> None:
    folders = ("cli", "migrations", "outbox", "reconciler", "sweeper", "testing", "idem")
    found = {
        str(path.relative_to(ROOT)): calls
        for folder in folders
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".py", ".sql"}
        and (calls := re.findall(r"pg_advisory_(?!unlock)\w+", path.read_text(encoding="utf-8")))
    }
    assert set(found) == WAITING, found


def test_an_upgrade_names_the_session_that_holds_its_turn(empty_database: str, holder: psycopg.Connection) -> None:
    with pytest.raises(MigrationError, match=named(holder)) as told:
        runner.upgrade(empty_database, environment="test", lock_wait=0.05)
    assert "Nothing is changed" in str(told.value) and "pg_terminate_backend(pid)" in str(told.value)
    assert holder.execute("SELECT to_regnamespace('idem')").fetchone() == (None,)
    holder.execute("SELECT pg_advisory_unlock_all()")
    holder.commit()
    assert runner.upgrade(empty_database, environment="test", lock_wait=5).up_to_date


def test_a_revision_of_the_users_own_names_it_too(empty_database: str, holder: psycopg.Connection) -> None:
    with engine_of(empty_database).begin() as connection:
        connection.execute(text("CREATE TABLE public.orders (id integer)"))
        with pytest.raises(MigrationError, match=named(holder)):
            upgrade_in(connection, environment="test", lock_timeout=0.05)
        # The caller decides what becomes of its transaction.
        assert connection.scalar(text("SELECT count(*) FROM public.orders")) == 0


def test_a_revision_that_is_written_as_text_names_it_too(empty_database: str, holder: psycopg.Connection) -> None:
    with psycopg.connect(empty_database) as own:
        with pytest.raises(psycopg.errors.LockNotAvailable, match=named(holder)):
            own.execute(script("test", 0.05))  # type: ignore[call-overload]
        own.rollback()
        holder.execute("SELECT pg_advisory_unlock_all()")
        own.execute("SET LOCAL lock_timeout = '77s'")
        own.execute(script("test", 0.05))  # type: ignore[call-overload]
        assert own.execute("SHOW lock_timeout").fetchone() == ("77s",)
        assert own.execute("SELECT environment FROM idem.installation").fetchone() == ("test",)


def test_what_a_role_may_not_see_is_said(server: str) -> None:
    """The owner of the database sees who holds the lock, and not since when; or no lock at all."""
    owner = f"idem_turns_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} NOSUPERUSER").format(sql.Identifier(owner)))
        try:
            with new_database(server, owner=owner) as url, psycopg.connect(url, autocommit=True) as holder:
                holder.execute(HOLD)  # type: ignore[call-overload]
                known = f"pid {holder.info.backend_pid}, .* since when is not shown to role {owner}.* pg_read_all_stats"
                with pytest.raises(MigrationError, match=known):
                    runner.upgrade(as_role(url, owner), environment="test", lock_wait=0.05)
                holder.execute("REVOKE SELECT ON pg_locks FROM PUBLIC")
                unseen = "may not read pg_locks"
                with pytest.raises(MigrationError, match=unseen):
                    runner.upgrade(as_role(url, owner), environment="test", lock_wait=0.05)
                with engine_of(as_role(url, owner)).begin() as own, pytest.raises(MigrationError, match=unseen):
                    upgrade_in(own, environment="test", lock_timeout=0.05)
                with pytest.raises(psycopg.errors.LockNotAvailable, match=unseen):
                    query(as_role(url, owner), script("test", 0.05))
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(owner)))


def test_a_session_of_idem_db_waits_for_no_lock_without_an_end(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} SET lock_timeout = 0").format(sql.Identifier(admin.info.dbname)))
    with runner.engine(empty_database).connect() as connection:
        assert connection.scalar(text("SHOW lock_timeout")) == "1min"


def test_what_sync_waits_for_needs_rights_to_hold(spine: Spine) -> None:
    """Every advisory lock is held by another session, and it goes on; a row of the operations is what it waits for."""
    with psycopg.connect(spine.url) as other, engine_of(spine.url).begin() as own:
        other.execute("SELECT pg_advisory_lock(n) FROM generate_series(501219328, 501219344) AS n")
        done = sql_operations.sync(own, spine.catalogue.operations, spine.catalogue.providers)
        assert {each.what for each in done} == {"new"}
        own.execute(text("SET LOCAL lock_timeout = '5s'"))
        held = own.execute(text("SELECT mode FROM pg_locks WHERE relation = 'idem.operations'::regclass")).scalars()
        assert "RowShareLock" in held.all()
