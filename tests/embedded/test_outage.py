"""Taking the server away from those who hold it, and giving it back."""

import os
import signal
import threading
import time

import psycopg
import pytest
from fix_sql import query
from fix_waiting import until_it_holds

from idem.testing.embedded import EmbeddedError, acquire, outage


def test_an_outage_breaks_connections_and_keeps_holds_address_and_data(home):
    with acquire(home, linger=0, durable=False) as pg:
        before = pg.server_pid
        with psycopg.connect(pg.url) as db:
            db.execute("CREATE TABLE kept AS SELECT 42 AS n")
            db.commit()
            outage(pg, 0.3)
            with pytest.raises(psycopg.OperationalError):
                db.execute("SELECT 1")
        assert pg.server_pid != before
        assert query(pg.url, "SELECT n FROM kept") == [(42,)]


def test_without_waiting_it_returns_when_the_server_is_down_and_newcomers_wait_for_it(home):
    with acquire(home, linger=0, durable=False) as pg:
        begun = time.monotonic()
        outage(pg, 2, wait=False)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(pg.url)
        with acquire(home, durable=False) as newcomer:
            assert time.monotonic() - begun >= 2
            assert newcomer.server_pid != pg.server_pid
            psycopg.connect(newcomer.url).close()


def test_an_outage_in_an_outage_is_two_of_them(home):
    with acquire(home, linger=0, durable=False) as pg:
        other = threading.Thread(target=outage, args=(pg, 0.5))
        other.start()
        outage(pg, 0.5)
        other.join()
        psycopg.connect(pg.url).close()


def test_the_last_user_leaves_during_an_outage(home, processes_of):
    with acquire(home, linger=0, durable=False) as pg:
        outage(pg, 3600, wait=False)
        assert len(processes_of(home)) == 1
    until_it_holds(lambda: not processes_of(home))


def test_without_a_supervisor_there_is_no_outage(home, supervisor_of, processes_of):
    with acquire(home, linger=0, durable=False) as pg:
        os.kill(supervisor_of(home), signal.SIGTERM)
        until_it_holds(lambda: not processes_of(home))
        with pytest.raises(EmbeddedError, match="did not stop for an outage"):
            outage(pg, 0)
    with acquire(home, linger=0, durable=False) as pg:  # and the request is not carried out on a later server
        time.sleep(0.3)
        psycopg.connect(pg.url).close()
