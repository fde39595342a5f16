"""Upgrades: several at once, behind a lock, by hand, by an ordinary owner, of a newer database."""

import ast
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_sql import query
from schema.catalog import dump
from schema.databases import ENVIRONMENT, Installed, as_role, new_database

from idem.migrations import grants, runner, statements

UPGRADE = """
import sys
from idem.migrations import runner
print("ready", flush=True)
sys.stdin.readline()
runner.upgrade(sys.argv[1], environment="test")
"""


def test_ib_158_five_upgrades_of_an_empty_database_at_once(empty_database: str, db_url: str) -> None:
    """All succeed, and leave one schema with one installation."""
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, empty_database],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(5)
    ]  # fmt: skip
    for starter in starters:
        assert starter.stdout and starter.stdout.readline() == "ready\n"
    for starter in starters:
        assert starter.stdin
        starter.stdin.write("go\n")
        starter.stdin.flush()
    ends = [(starter.communicate()[1], starter.returncode) for starter in starters]
    assert ends == [("", 0)] * 5
    assert dump(empty_database) == dump(db_url)
    assert query(empty_database, "SELECT count(*), min(environment) FROM idem.installation")[0] == (1, "test")


def test_the_sql_to_run_by_hand_makes_the_same_schema(empty_database: str, db_url: str) -> None:
    query(empty_database, runner.offline_sql("it's ours"))
    assert dump(empty_database) == dump(db_url)
    installation = "SELECT environment, secret, database_name = current_database() FROM idem.installation"
    first: Any = query(empty_database, installation)[0]
    assert (first[0], len(first[1]), first[2]) == ("it's ours", 32, True)
    # The secret is made by the database that keeps it: no printed text holds it.
    assert first[1].hex() not in runner.offline_sql()
    runner.upgrade(empty_database, environment=ENVIRONMENT)
    assert query(empty_database, installation)[0] == first


def test_one_by_one_the_statements_are_what_the_files_say(scripts: Path) -> None:
    """What runs them in somebody's own Alembic takes each alone, and knows no other module than `op`."""
    found = statements.revisions()
    assert [each.name for each in statements.revisions(scripts)] == [*(each.name for each in found), "0002"]
    assert [(each.name, each.after) for each in found] == [
        (each.name, before.name if before else None) for each, before in zip(found, [None, *found[:-1]], strict=True)
    ]
    assert found[-1].name == runner.head()
    for path in Path(statements.__file__).parent.joinpath("versions").glob("0*.py"):
        imports = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom | ast.Import)
        ]
        assert {alias.name for node in imports for alias in node.names} <= {"annotations", "Path", "op"}, path
    for path in Path(statements.__file__).parent.joinpath("versions").glob("*.sql"):
        assert "BEGIN ATOMIC" not in path.read_text()


@pytest.mark.parametrize(
    ("script", "parts"),
    [
        ("", []),
        (" ; ;\n-- only; a comment\n;", []),
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("-- why; not\nSELECT 1;  -- after\n", ["-- why; not\nSELECT 1"]),
        ("SELECT ';', 'it''s;', \";\";SELECT 2", ["SELECT ';', 'it''s;', \";\"", "SELECT 2"]),
        (r"SELECT E'\';', 'a\';SELECT 2", [r"SELECT E'\';', 'a\'", "SELECT 2"]),
        ("DO $$ a; $b$ ; $$; DO $b$ ; $$ ; $b$", ["DO $$ a; $b$ ; $$", "DO $b$ ; $$ ; $b$"]),
        ("SELECT a$b$ FROM x; SELECT $1, d$$ ;", ["SELECT a$b$ FROM x", "SELECT $1, d$$"]),
        ("SELECT '-- no', 1 -- ' ;\n, 2; SELECT 3", ["SELECT '-- no', 1 -- ' ;\n, 2", "SELECT 3"]),
    ],
)
def test_a_script_is_split_where_a_statement_ends(script: str, parts: list[str]) -> None:
    assert list(statements.split(script)) == parts


def test_an_upgrade_that_has_nothing_to_do_keeps_the_installation(db_url: str) -> None:
    before = query(db_url, "SELECT * FROM idem.installation")
    assert runner.upgrade(db_url, environment="another").up_to_date
    assert query(db_url, "SELECT * FROM idem.installation") == before


@pytest.mark.parametrize("table", ["intents", "idempotency_keys", "outbox", "requests", "evidence"])
def test_ib_157_an_upgrade_behind_a_long_reader_gives_up_whole(db_url: str, scripts: Path, table: str) -> None:
    """Within its lock timeout, with a text that says what to do; a second run succeeds."""
    before = dump(db_url)
    with psycopg.connect(db_url) as reader:
        reader.execute(f"SELECT count(*) FROM idem.{table}")
        with pytest.raises(runner.MigrationError) as caught:
            runner.upgrade(db_url, environment=ENVIRONMENT, lock_timeout=0.05, attempts=2, scripts=scripts)
        assert "nothing was changed" in str(caught.value)
        assert "pg_stat_activity" in str(caught.value)
        assert dump(db_url) == before
        with psycopg.connect(db_url) as api:
            assert api.execute("SET lock_timeout = '5s'") is not None
            assert api.execute(f"SELECT count(*) FROM idem.{table}").fetchone() == (0,)
    assert runner.upgrade(db_url, environment=ENVIRONMENT, scripts=scripts).current == "0002"


def test_ib_160_an_upgrade_that_is_a_deadlocks_victim_runs_again(db_url: str, scripts: Path) -> None:
    """Live traffic takes outbox then intents, the migration intents then outbox: one of them is rolled back."""
    first_lock = threading.Event()

    def traffic() -> None:
        with psycopg.connect(db_url) as connection:
            # The one that looks for deadlocks first is the victim: not this one.
            connection.execute("SET deadlock_timeout = '100s'")
            connection.execute("LOCK TABLE idem.outbox IN ROW EXCLUSIVE MODE")
            first_lock.set()
            with psycopg.connect(db_url, autocommit=True) as look:
                waiting = (
                    "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'idem.outbox'::regclass)"
                )
                while look.execute(waiting).fetchone() == (False,):
                    pass
            connection.execute("LOCK TABLE idem.intents IN ROW EXCLUSIVE MODE")

    thread = threading.Thread(target=traffic)
    thread.start()
    first_lock.wait()
    done = runner.upgrade(db_url, environment=ENVIRONMENT, lock_timeout=60, scripts=scripts)
    thread.join()
    assert done.current == "0002"


def test_a_database_of_a_newer_version_is_left_alone(db_url: str) -> None:
    query(db_url, "UPDATE idem.alembic_version SET version_num = '9999'")
    with pytest.raises(runner.MigrationError, match=r"does not know .*9999"):
        runner.upgrade(db_url, environment=ENVIRONMENT)
    assert query(db_url, "SELECT version_num FROM idem.alembic_version")[0] == ("9999",)


def test_a_server_that_is_away_is_said_to_be(server: str) -> None:
    with pytest.raises(runner.MigrationError, match="cannot reach the database"):
        runner.upgrade("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2", environment=ENVIRONMENT)


def test_an_ordinary_owner_installs_all_of_it(installed: Installed, db_url: str) -> None:
    assert dump(installed.superuser_url) == dump(db_url)
    owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'idem'::regnamespace"
    assert query(installed.superuser_url, owners) == [(installed.owner,)]
    assert runner.upgrade(installed.url("owner"), environment=ENVIRONMENT).up_to_date


def test_an_owner_of_the_schema_alone_needs_no_right_to_make_schemas(server: str, roles: tuple[str, str, str]) -> None:
    owner = roles[0]
    with new_database(server) as url:
        query(url, f"CREATE SCHEMA idem AUTHORIZATION {owner}")
        assert runner.upgrade(as_role(url, owner), environment=ENVIRONMENT).up_to_date
        query(url, "DROP SCHEMA idem CASCADE")


def test_a_schema_of_anothers_is_refused_in_words(empty_database: str, roles: tuple[str, str, str]) -> None:
    with pytest.raises(runner.MigrationError, match="permission denied"):
        runner.upgrade(as_role(empty_database, roles[1]), environment=ENVIRONMENT)


def test_grants_are_idempotent_and_take_any_name(installed: Installed) -> None:
    odd = f'{installed.daemon} "100%" :x'
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {grants.quoted(odd)}")
        try:
            for _ in range(2):
                runner.grant(installed.url("owner"), odd, "daemon")
            sees = admin.execute("SELECT has_table_privilege(%s, 'idem.outbox', 'DELETE')", [odd]).fetchone()
            assert sees == (True,)
        finally:
            admin.execute(f"DROP OWNED BY {grants.quoted(odd)}")
            admin.execute(f"DROP ROLE {grants.quoted(odd)}")
    with pytest.raises(runner.MigrationError, match="does not exist"):
        runner.grant(installed.url("owner"), "nobody at all", "daemon")
    with pytest.raises(ValueError, match="must not be empty"):
        grants.quoted("")


PRIVILEGES = """
SELECT c.relname, p.privilege FROM pg_class c
 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p (privilege)
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')
   AND has_table_privilege(%s, c.oid, p.privilege)
"""


def rights(pristine: Installed, role: str) -> dict[str, set[str]]:
    with psycopg.connect(pristine.superuser_url) as connection:
        found: dict[str, set[str]] = {}
        for table, privilege in connection.execute(PRIVILEGES, [role]):
            found.setdefault(table, set()).add(privilege)
        return found


def test_the_daemons_rights_end_at_history(pristine: Installed) -> None:
    found = rights(pristine, pristine.daemon)
    assert not {"TRUNCATE", "REFERENCES", "TRIGGER"} & set().union(*found.values())
    for table in ("evidence", "events", "requests"):
        assert found[table] == {"SELECT", "INSERT", "DELETE"}, table
    # What the triggers let go is past its retention, and of dead letters what is resolved.
    assert found["lane_changes"] == {"SELECT", "INSERT", "DELETE"}
    assert found["dead_letters"] == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    assert "DELETE" not in found["intents"] | found["api_tokens"] | found["installation"]
    assert found["alembic_version"] == {"SELECT"}
    everything = {name for name, kind, _ in dump(pristine.superuser_url)["relations"] if kind == "r"}
    assert everything - found.keys() == set()


def test_a_producer_deletes_nothing_and_reads_no_answer_but_its_keys(pristine: Installed) -> None:
    found = rights(pristine, pristine.producer)
    assert not {"DELETE", "TRUNCATE", "UPDATE"} & set().union(*found.values())
    assert {"api_tokens", "evidence", "events", "requests", "webhook_bodies", "lanes", "daemons"}.isdisjoint(
        {table for table, privileges in found.items() if "SELECT" in privileges}
    )
