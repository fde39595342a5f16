"""Nobody becomes the owner: functions that run as the owner of the schema run nobody else's code, whoever calls them.

Everything is taken from the catalogue: a function, a trigger or a grant that is new is tried without being listed here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from fix_spine import catalogue
from fix_sql import query
from producers.application import synced
from schema.databases import Installed
from schema.hostile import OwnersFunction, bring_names, bring_types, owners_functions, session

from idem.migrations import grants, runner

Connection = psycopg.Connection[Any]
KINDS = ["daemon", "producer", "sql", "reader"]
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
INSERT_A_ROW, THE_REST = "INSERT", "UPDATE OR DELETE"


@pytest.fixture
def granted(installed: Installed) -> Iterator[dict[str, str]]:
    """A role of each kind that `idem db grant` makes, and one that reads events as the page about CDC says."""
    names = {kind: f"idem_{kind}_{uuid4().hex[:12]}" for kind in KINDS}
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        # As people have it: every role may make objects of its own in the database.
        (database,) = admin.execute("SELECT current_database()").fetchone() or ("",)
        for kind, name in names.items():
            admin.execute(f"CREATE ROLE {name} NOSUPERUSER")
            admin.execute(f"GRANT CREATE, TEMPORARY ON DATABASE {database} TO {name}")
            if kind != "reader":
                runner.grant(installed.url("owner"), name, kind, ["acme"])  # type: ignore[arg-type]
        admin.execute(f"GRANT USAGE ON SCHEMA idem TO {names['reader']}")
        admin.execute(f"GRANT SELECT ON idem.events TO {names['reader']}")
        synced(installed.url("daemon"), catalogue("http://127.0.0.1:9"))
        yield names
        for name in names.values():
            admin.execute(f"DROP OWNED BY {name} CASCADE")
            admin.execute(f"DROP ROLE {name}")


PUBLIC = Path(__file__).with_name("owner_functions_public.sql").read_text()


def test_everybody_has_no_right_at_all(installed: Installed, granted: dict[str, str]) -> None:
    assert query(installed.superuser_url, PUBLIC) == []


def test_a_grant_takes_from_everybody_what_an_older_schema_gave(installed: Installed, granted: dict[str, str]) -> None:
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        admin.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idem TO PUBLIC")
        runner.grant(installed.url("owner"), granted["sql"], "sql", ["acme"])
        assert admin.execute(PUBLIC).fetchall() == []


OWNED = """
SELECT p.oid::regprocedure::text, p.proconfig, p.proowner = n.nspowner FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'idem' AND p.prosecdef
"""


def test_a_function_of_the_owner_looks_for_names_in_the_catalogue_alone(installed: Installed) -> None:
    found = query(installed.superuser_url, OWNED)
    assert len(found) >= 5
    for name, settings, owned in found:
        assert owned and "search_path=pg_catalog, pg_temp" in (settings or []), name


MAY_CALL = """
SELECT p.oid::regprocedure::text FROM pg_proc p
 WHERE p.pronamespace = 'idem'::regnamespace AND has_function_privilege(%s, p.oid, 'EXECUTE')
"""
NAMED = "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'idem'::regnamespace AND p.proname = %s"


@EACH_KIND
def test_a_role_may_call_what_its_kind_names_and_no_trigger(
    installed: Installed, granted: dict[str, str], kind: str
) -> None:
    listed = grants.FUNCTIONS.get(kind, ())
    with psycopg.connect(installed.superuser_url) as look:
        may = {name for (name,) in look.execute(MAY_CALL, [granted[kind]])}
        wanted = set()
        for name in listed:
            if "(" in name:
                wanted |= {row[0] for row in look.execute("SELECT to_regprocedure(%s)::text", [f"idem.{name}"])}
            else:
                wanted |= {row[0] for row in look.execute(NAMED, [name])}
    assert may == wanted
    assert not may & {function.name for function in owners_functions(installed.superuser_url) if function.fires}


HOME = Path(__file__).parent.parent.parent
CALLED = re.compile(r"(?<!\w)idem\.([a-z_0-9]+)\(")


def test_a_daemon_may_call_every_function_that_a_statement_names(installed: Installed, granted: dict[str, str]) -> None:
    """And what those functions call themselves, where they run as their caller."""
    with psycopg.connect(installed.superuser_url) as look:
        found = look.execute(
            "SELECT proname, prosecdef, prorettype = 'trigger'::regtype, prosrc FROM pg_proc"
            " WHERE pronamespace = 'idem'::regnamespace"
        ).fetchall()
        may = {name.partition("(")[0].removeprefix("idem.") for (name,) in look.execute(MAY_CALL, [granted["daemon"]])}
    known = {name for name, *_ in found}
    wanted: set[str] = set()
    for folder in ("outbox", "reconciler", "sweeper", "cli", "idem"):
        for path in (HOME / folder).rglob("*.py"):
            wanted |= set(CALLED.findall(path.read_text())) & known
    assert len(wanted) >= 8
    for name, as_owner, fires, body in found:
        if not as_owner and (fires or name in wanted):
            wanted |= set(CALLED.findall(body)) & known
    assert wanted - may == {"approve"}, "an operator's right, which no daemon has"


COLUMNS = """
SELECT DISTINCT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
 WHERE a.attrelid = ANY (%s::regclass[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1
"""
EACH_ROW = "BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW"
TIMINGS = (
    EACH_ROW,
    "AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW",
    "BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT",
    "AFTER INSERT ON {table} REFERENCING NEW TABLE AS written FOR EACH STATEMENT",
)


def hang(connection: Connection, function: OwnersFunction, columns: dict[str, str], timing: str, table: str) -> None:
    """Hang the function on a temporary table with these columns, and write to it."""
    connection.execute(f"DROP TABLE IF EXISTS pg_temp.{table}")
    spelled = ", ".join(f'"{name}" {typed}' for name, typed in columns.items())
    connection.execute(f"CREATE TEMP TABLE {table} ({spelled})")
    at = timing.format(table=f"pg_temp.{table}")
    connection.execute(f"CREATE TRIGGER forged {at} EXECUTE FUNCTION {function.bare}()")
    values = ", ".join("'x'" if typed.endswith((".word", ".checked", "text")) else "NULL" for typed in columns.values())
    first = next(iter(columns))
    for statement in (f"INSERT INTO pg_temp.{table} VALUES ({values})", f'UPDATE pg_temp.{table} SET "{first}" = NULL',
                      f"DELETE FROM pg_temp.{table}"):  # fmt: skip
        try:
            connection.execute(statement)
        except psycopg.Error:
            continue


@EACH_KIND
def test_a_forged_trigger_runs_nothing_as_the_owner(installed: Installed, granted: dict[str, str], kind: str) -> None:
    """Even where somebody has granted the trigger's function by hand: it knows its own table.

    All columns are of a type of the caller's, and then one after the other: a body that compares two of them may not
    even be planned with the first.
    """
    fire = [function for function in owners_functions(installed.superuser_url) if function.fires]
    assert len(fire) >= 3
    role = granted[kind]
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        admin.execute("INSERT INTO idem.lanes (provider, account, paused, accept_paused) VALUES ('x', '', true, true)")
        columns: dict[str, dict[str, str]] = {}
        for function in fire:
            admin.execute(f"GRANT EXECUTE ON FUNCTION {function.name} TO {role}")
            columns[function.name] = dict(admin.execute(COLUMNS, [list(function.tables)]).fetchall())
    with session(installed, role) as (connection, ran):
        connection.execute("CREATE SCHEMA AUTHORIZATION current_role")
        bring_types(connection, role)
        for path in ("pg_catalog, pg_temp", f"{role}, pg_temp, pg_catalog"):
            connection.execute(f"SET search_path = {path}")
            for typed in (f"{role}.word", f"{role}.checked"):
                for function in fire:
                    real = columns[function.name]
                    for table in {name.removeprefix("idem.") for name in function.tables} | {"mine"}:
                        for timing in TIMINGS:
                            hang(connection, function, dict.fromkeys(real, typed), timing, table)
                            assert ran <= {role}, (function.name, typed, path, timing)
                    for one in real if path.startswith("pg_catalog") else ():
                        hang(connection, function, real | {one: typed}, EACH_ROW, "mine")
                        assert ran <= {role}, (function.name, one, typed, path)
    assert ran == {role}


@EACH_KIND
def test_a_trigger_of_the_owner_is_nobodys_to_hang(installed: Installed, granted: dict[str, str], kind: str) -> None:
    fire = [function for function in owners_functions(installed.superuser_url) if function.fires]
    with session(installed, granted[kind]) as (connection, _):
        connection.execute("CREATE TEMP TABLE mine (provider text)")
        for function in fire:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"CREATE TRIGGER t BEFORE INSERT ON mine EXECUTE FUNCTION {function.bare}()")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TEMP TABLE holds (one idem.idempotency_keys)")


VALUES = {
    "text": "'acme'", "json": "'{\"amount\": 1}'", "jsonb": "'{}'", "uuid": "gen_random_uuid()", "bytea": "''",
    "interval": "'1 h'", "boolean": "true", "integer": "1", "smallint": "201", "double precision": "1.0",
    "idem.idempotency_keys": "NULL",
}  # fmt: skip


BODIES = """
SELECT coalesce(nullif(prosrc, ''), pg_get_function_sqlbody(oid)) FROM pg_proc
 WHERE pronamespace = 'idem'::regnamespace
"""


@pytest.mark.parametrize("kind", ["daemon", "producer", "sql"])
def test_a_call_with_types_and_names_of_ones_own_runs_nothing_as_the_owner(
    installed: Installed, granted: dict[str, str], kind: str
) -> None:
    """Arguments of one's own types, functions, operators and temporary tables of the names that the bodies use."""
    role, functions = granted[kind], owners_functions(installed.superuser_url)
    with psycopg.connect(installed.superuser_url) as look:
        may = {name for (name,) in look.execute(MAY_CALL, [role])}
        tables = [f"idem.{row[0]}" for row in look.execute("SELECT relname FROM pg_class WHERE relkind = 'r'"
                                                           " AND relnamespace = 'idem'::regnamespace")]  # fmt: skip
        bodies = [row[0] for row in look.execute(BODIES)]
    calls = [function for function in functions if function.name in may]
    assert calls
    calls_made, succeeded = 0, 0
    with session(installed, role) as (connection, ran):
        connection.execute("CREATE SCHEMA AUTHORIZATION current_role")
        bring_types(connection, role)
        assert bring_names(connection, role, bodies, tables) > 200
        for path in (f"{role}, pg_temp, pg_catalog", "pg_catalog", f"pg_temp, {role}"):
            connection.execute(f"SET search_path = {path}")
            for function in calls:
                for place in range(-1, len(function.arguments)):
                    for own in (f"'x'::{role}.word", f"'x'::{role}.checked"):
                        given = [VALUES.get(each, "NULL") for each in function.arguments]
                        if function.bare == "idem.accept" and "json" in function.arguments:
                            given[1], given[2] = "'pay.keyed'", f"'k{calls_made}'"
                        if place >= 0:
                            given[place] = own
                        calls_made += 1
                        try:
                            connection.execute(f"SELECT {function.bare}({', '.join(given)})")
                            succeeded += 1
                        except psycopg.Error:
                            pass
                        assert ran <= {role}, (function.name, given, path)
    assert ran == {role} and calls_made > 30 and succeeded > 0
