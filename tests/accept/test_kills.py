"""IB-030: the accepting process is killed at each statement. Intent, key, row and the caller's own: all or nothing."""

import os
import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from accept.shop import ORDER, WRITTEN, Shop
from fix_dying import die
from fix_waiting import until_it_holds
from sqlalchemy import Connection, event

from idem.decisions import Accepted

ALL = dict.fromkeys([*(f"idem.{table}" for table in WRITTEN), "public.orders"], 1)
NOTHING = dict.fromkeys(ALL, 0)
CHILD = "idem-accept-child"


def forked(run: Callable[[], None]) -> int:
    """Run in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(1)
    return pid


def killed(run: Callable[[], None]) -> None:
    """Run in a process of its own, which has to be killed on the way."""
    _, status = os.waitpid(forked(run), 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def pay(connection: Connection, shop: Shop) -> None:
    connection.exec_driver_sql(f"SET application_name = '{CHILD}'")
    connection.exec_driver_sql(ORDER)
    shop.accept(connection)


def committed(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        pay(connection, shop)


def settled(shop: Shop) -> dict[str, int]:
    """What is committed once the dead process's backend has seen that nobody is there."""
    backends = "SELECT FROM pg_stat_activity WHERE application_name = %(child)s"
    until_it_holds(lambda: not shop.rows(backends, child=CHILD), what="the end of its session")
    return shop.counts()


STATEMENTS = ["SET application_name", "INSERT INTO public.orders", "SELECT secret", "SELECT d.decision"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_ib_030_killed_around_each_statement_before_the_commit(shop: Shop, statement: str, moment: str) -> None:
    def run() -> None:
        def strike(*seen: Any) -> None:
            if seen[2].strip().startswith(statement):
                die()

        event.listen(shop.engine, f"{moment}_cursor_execute", strike)
        committed(shop)

    killed(run)
    assert settled(shop) == NOTHING
    assert isinstance(shop.once(), Accepted)


@pytest.mark.parametrize("table", WRITTEN)
def test_ib_030_killed_while_the_statement_writes(shop: Shop, table: str) -> None:
    """The server holds in the middle of the one statement, at this table, when the process dies."""
    waits = "SELECT FROM pg_stat_activity WHERE application_name = %(child)s AND wait_event_type = 'Lock'"
    with psycopg.connect(shop.url) as blocker:
        blocker.execute(f"LOCK TABLE idem.{table} IN SHARE ROW EXCLUSIVE MODE")
        pid = forked(lambda: committed(shop))
        until_it_holds(lambda: shop.rows(waits, child=CHILD), what="accept at the table")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert settled(shop) == NOTHING
    assert isinstance(shop.once(), Accepted)


def test_ib_030_killed_between_commit_and_its_answer(shop: Shop) -> None:
    """The process dies with the COMMIT on its way: whichever it was, the four stand or fall together."""

    def run() -> None:
        with shop.engine.connect() as connection:
            pay(connection, shop)
            driver: Any = connection.connection.driver_connection
            driver.pgconn.send_query(b"COMMIT")
            driver.pgconn.flush()
            die()

    killed(run)
    assert settled(shop) in (ALL, NOTHING)


def test_ib_030_killed_after_the_commit(shop: Shop) -> None:
    def run() -> None:
        committed(shop)
        die()

    killed(run)
    assert settled(shop) == ALL


def test_ib_030_the_control_a_process_that_lives_leaves_all(shop: Shop) -> None:
    committed(shop)
    assert settled(shop) == ALL
