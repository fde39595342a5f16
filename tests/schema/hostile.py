"""What a role may bring of its own, to have the owner's functions run its code: types, casts, operators, names."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from fix_sql import query
from psycopg import sql
from schema.databases import Installed

Connection = psycopg.Connection[Any]

OWNERS = """
SELECT p.oid::regprocedure::text AS name, p.prorettype = 'trigger'::regtype AS fires,
       ARRAY(SELECT format_type(a.type, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, place)
              ORDER BY a.place) AS arguments,
       ARRAY(SELECT DISTINCT t.tgrelid::regclass::text FROM pg_trigger t WHERE t.tgfoid = p.oid) AS tables,
       p.prosrc AS body
  FROM pg_proc p WHERE p.pronamespace = 'idem'::regnamespace AND p.prosecdef ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class OwnersFunction:
    """A function that runs as the owner of the schema, as the catalogue has it."""

    name: str
    fires: bool
    arguments: tuple[str, ...]
    tables: tuple[str, ...]
    body: str

    @property
    def bare(self) -> str:
        """Its name without arguments, as CREATE TRIGGER wants it."""
        return self.name.partition("(")[0]


def owners_functions(url: str) -> list[OwnersFunction]:
    """All of them."""
    found = query(url, OWNERS)
    return [OwnersFunction(name, fires, tuple(args), tuple(tables), body) for name, fires, args, tables, body in found]


@contextmanager
def session(installed: Installed, role: str) -> Iterator[tuple[Connection, set[str]]]:
    """A session that has logged in as this role, for all that the database can tell; as whom the payload ran in it."""
    ran: set[str] = set()

    def notice(said: psycopg.errors.Diagnostic) -> None:
        if (said.message_primary or "").startswith("payload ran as "):
            ran.add(str(said.message_primary).removeprefix("payload ran as "))

    with psycopg.connect(installed.superuser_url, autocommit=True) as connection:
        connection.add_notice_handler(notice)
        connection.execute(f"SET SESSION AUTHORIZATION {role}")
        connection.execute("SET client_min_messages = notice")
        yield connection, ran


# Says as whom it ran. A notice is sent at once, whatever becomes of the statement.
PAYLOAD = """
CREATE FUNCTION {schema}.payload() RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog AS $$
BEGIN
    RAISE NOTICE USING MESSAGE = 'payload ran as ' || current_user;
    RETURN true;
END $$
"""
TARGETS = ("text", "uuid", "boolean", "integer", "smallint", "jsonb", "bytea", "timestamptz")


def bring_types(connection: Connection, schema: str) -> None:
    """A type that becomes any other by code of its own, one with operators of its own, a domain that checks by code."""
    connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC")
    connection.execute(PAYLOAD.format(schema=schema))
    connection.execute(f"CREATE TYPE {schema}.word AS ENUM ('x')")
    for target in TARGETS:
        value = {"uuid": "'00000000-0000-0000-0000-000000000001'", "boolean": "true", "integer": "1", "smallint": "1",
                 "jsonb": "'{}'", "timestamptz": "'2020-01-01Z'"}.get(target, "'x'")  # fmt: skip
        connection.execute(f"""
            CREATE FUNCTION {schema}.to_{target}({schema}.word) RETURNS {target} LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN PERFORM {schema}.payload(); RETURN {value}; END $$""")
        connection.execute(
            f"CREATE CAST ({schema}.word AS {target}) WITH FUNCTION {schema}.to_{target}({schema}.word) AS IMPLICIT"
        )
        for name in ("=", "<>", "<", "<=", ">", ">="):
            function = f"{schema}.op_{target}_{'_'.join(str(ord(sign)) for sign in name)}"
            connection.execute(f"""
                CREATE FUNCTION {function}({target}, {schema}.word) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
                BEGIN RETURN {schema}.payload(); END $$""")
            connection.execute(
                f"CREATE OPERATOR {schema}.{name} (LEFTARG = {target}, RIGHTARG = {schema}.word, FUNCTION = {function})"
            )
    connection.execute(f"CREATE DOMAIN {schema}.checked AS text CHECK ({schema}.payload())")


def bring_names(connection: Connection, schema: str, bodies: Iterable[str], tables: Iterable[str]) -> int:
    """Functions, operators and tables with the names that these bodies use; how many. They come first in the path."""
    used = sorted({word for body in bodies for word in _called(body)})
    made = 0
    for name in used:
        for arguments in ("", "text", "text, text", "text, text, boolean", "anyelement", "anyarray", "json", "jsonb",
                          "VARIADIC text[]", "interval", "double precision"):  # fmt: skip
            try:
                connection.execute(
                    sql.SQL("CREATE FUNCTION {}.{}(" + arguments + ") RETURNS text LANGUAGE plpgsql AS {}").format(
                        sql.Identifier(schema),
                        sql.Identifier(name),
                        sql.Literal(f"BEGIN PERFORM {schema}.payload(); RETURN 'x'; END"),
                    )  # type: ignore[arg-type]
                )
                made += 1
            except psycopg.errors.Error:
                continue
    for kind in ("text", "uuid", "boolean", "integer", "timestamptz", "name", "jsonb", "json", "bytea", "interval"):
        for number, name in enumerate(("=", "<>", "<", ">", "||", "~", "!~", "->>", "#>>", "+", "-")):
            function = f"{schema}.same_{kind}_{number}"
            connection.execute(f"""
                CREATE FUNCTION {function}({kind}, {kind}) RETURNS boolean LANGUAGE plpgsql AS $$
                BEGIN RETURN {schema}.payload(); END $$""")
            connection.execute(
                f"CREATE OPERATOR {schema}.{name} (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = {function})"
            )
            made += 1
    for table in tables:
        name = table.removeprefix("idem.")
        connection.execute(f"CREATE TEMP TABLE {name} (id {schema}.word, role {schema}.word, tenant {schema}.word)")
        made += 1
    return made


def _called(body: str) -> Iterator[str]:
    for found in re.finditer(r"(?<![.\w])([a-z_][a-z_0-9]*)\(", body):
        yield found[1]
