"""The upgrade from one revision to the next, with a second revision of the tests: whole or not at all, under load."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from alembic.script import ScriptDirectory
from fix_sql import engine_of, query
from schema import revisions
from schema.catalog import dump
from schema.databases import ENVIRONMENT, new_database

from idem.migrations import inside, runner, statements


@pytest.fixture
def upgraded(server: str, template: str, scripts: Path) -> Iterator[str]:
    """A database of the product's schema, brought to the next revision by the command."""
    with new_database(server, template=template) as url:
        assert runner.upgrade(url, environment=ENVIRONMENT, scripts=scripts).current == "0002"
        yield url


def test_an_upgrade_applies_what_is_missing_once(upgraded: str, db_url: str, scripts: Path) -> None:
    assert {"next"} == {row[0] for row in dump(upgraded)["relations"] - dump(db_url)["relations"]} - {"next_pkey"}
    again = runner.upgrade(upgraded, environment=ENVIRONMENT, scripts=scripts)
    assert again.up_to_date and again.head == "0002"
    assert query(upgraded, "SELECT said FROM idem.next") == [(f"{ENVIRONMENT};",)]


@pytest.mark.parametrize("how", ["command", "in their revision", "as their script", "as our script"])
def test_from_nothing_every_way_makes_the_same(empty_database: str, upgraded: str, scripts: Path, how: str) -> None:
    if how == "command":
        runner.upgrade(empty_database, environment=ENVIRONMENT, scripts=scripts)
    elif how == "in their revision":
        with engine_of(empty_database).begin() as connection:
            inside.apply(connection, ENVIRONMENT, scripts=scripts)
    else:
        offline = runner.offline_sql if how == "as our script" else inside.script
        query(empty_database, offline(ENVIRONMENT, scripts=scripts))
    assert dump(empty_database) == dump(upgraded)


def test_a_revision_that_fails_leaves_nothing(db_url: str, tmp_path: Path) -> None:
    before = dump(db_url)
    failing = revisions.with_another(tmp_path / "failing", "next_fails")
    with pytest.raises(runner.MigrationError, match=r"rolled back completely: division by zero"):
        runner.upgrade(db_url, environment=ENVIRONMENT, scripts=failing)
    assert dump(db_url) == before
    assert runner.upgrade(db_url, environment=ENVIRONMENT).up_to_date


def test_starters_at_once_take_turns_and_one_of_them_upgrades(db_url: str, upgraded: str, scripts: Path) -> None:
    """Each revision would fail a second time."""
    with ThreadPoolExecutor(4) as starters:
        upgrade = partial(runner.upgrade, db_url, environment=ENVIRONMENT, scripts=scripts, lock_timeout=60)
        done = [starters.submit(upgrade) for _ in range(4)]
    assert [each.result().current for each in done] == ["0002"] * 4
    assert dump(db_url) == dump(upgraded)


ACCEPT = """
SELECT d.decision FROM idem.accept_under_key('t', 'pay', %(key)s, 'v1:1', '{"amount": 1}', NULL, 'p', 'a', 'https://p',
       %(id)s, 'POST', '/', '{}', '', '1 day', '1 hour', 86400, false, NULL) AS d
"""


def test_live_traffic_goes_on_while_the_schema_is_upgraded(db_url: str, scripts: Path) -> None:
    """No request is lost. One that a deadlock with the upgrade rolls back is repeated by its client, as ever."""
    over = threading.Event()
    flowing = threading.Semaphore(0)
    accepted: list[str] = []

    def traffic() -> None:
        with psycopg.connect(db_url, autocommit=True) as connection:
            while not over.is_set():
                key = str(uuid4())
                try:
                    decided = connection.execute(ACCEPT, {"key": key, "id": uuid4()}).fetchone()
                except psycopg.errors.DeadlockDetected:
                    continue
                assert decided == ("accepted",)
                accepted.append(key)
                flowing.release()

    clients = [threading.Thread(target=traffic) for _ in range(3)]
    for client in clients:
        client.start()
    for _ in range(10):
        assert flowing.acquire(timeout=60)
    done = runner.upgrade(db_url, environment=ENVIRONMENT, scripts=scripts, attempts=20)
    before = len(accepted)
    while len(accepted) < before + 10:
        assert all(client.is_alive() for client in clients)
    over.set()
    for client in clients:
        client.join(60)
    assert done.current == "0002"
    kept = {key for (key,) in query(db_url, "SELECT idempotency_key FROM idem.intents")}
    assert kept == set(accepted)


def test_a_database_at_the_next_revision_is_left_alone_by_this_version(upgraded: str) -> None:
    """By the command and in their own migration."""
    before = dump(upgraded)
    with pytest.raises(runner.MigrationError, match=r"does not know .*0002.*the version of idem that created it"):
        runner.upgrade(upgraded, environment=ENVIRONMENT)
    with (
        engine_of(upgraded).connect() as connection,
        pytest.raises(runner.MigrationError, match="at revision 0002, which this version of idem does not know"),
    ):
        inside.apply(connection, ENVIRONMENT)
    assert dump(upgraded) == before


def test_no_revision_has_a_downgrade() -> None:
    """A downgrade would drop the record of what was paid."""
    for each in ScriptDirectory(str(statements.SCRIPTS)).walk_revisions():
        with pytest.raises(NotImplementedError, match="drop the schema by hand, after a backup"):
            each.module.downgrade()
