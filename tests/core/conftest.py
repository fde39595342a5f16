"""Databases that idem did not choose: each has the whole schema, and a URL of its own."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from connecting.conftest import acting_as, run, tables
from fix_database import ENVIRONMENT, clone, on
from fix_sql import query

from idem.migrations import grants, runner

_numbers = itertools.count(1)

SETTINGS = {
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "timezone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "default_transaction_isolation": "repeatable read",
    "search_path": "nowhere",
    "plan_cache_mode": "force_custom_plan",
    "enable_indexscan": "off",
    "client_encoding": "LATIN1",
    "synchronous_commit": "off",
    "idle_session_timeout": "60s",
}

PLACES = ("plain", "settings", "a Turkish locale", "the C locale", "row security")


@contextmanager
def made(server: str, how: str) -> Iterator[str]:
    """A database from nothing, with this in CREATE DATABASE."""
    name = f"idem_core_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as admin:
        try:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {how}")  # type: ignore[arg-type]
        except psycopg.errors.FeatureNotSupported:
            pytest.skip("this server has no ICU")
    runner.upgrade(on(server, name), environment=ENVIRONMENT)
    yield on(server, name)
    query(server, f"DROP DATABASE {name} WITH (FORCE)")


ROUTINES = "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'idem'::regnamespace"
TYPES = """
SELECT t.oid::regtype::text FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid
 WHERE t.typnamespace = 'idem'::regnamespace AND c.relkind = 'c'
"""


@contextmanager
def behind_policies(url: str) -> Iterator[str]:
    """Row-level security is on for all tables; the daemons' role has BYPASSRLS, as `idem doctor` asks for."""
    name = f"idem_core_{os.getpid()}"
    run(url, f"CREATE ROLE {name} BYPASSRLS", *grants.statements(name, "daemon"), f"GRANT pg_monitor TO {name}")
    with psycopg.connect(url) as look:
        routines = [row[0] for row in look.execute(ROUTINES)]
        types = [row[0] for row in look.execute(TYPES)]
    run(url, *(f"ALTER ROUTINE {each} OWNER TO {name}" for each in routines))
    run(url, *(f"ALTER TYPE {each} OWNER TO {name}" for each in types))
    for each in tables(url):
        run(
            url,
            # Its own, because the tests move time on, which only an owner may.
            f"ALTER TABLE idem.{each} OWNER TO {name}",
            f"ALTER TABLE idem.{each} ENABLE ROW LEVEL SECURITY",
            f"ALTER TABLE idem.{each} FORCE ROW LEVEL SECURITY",
        )
    run(url, f"ALTER SCHEMA idem OWNER TO {name}", f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idem TO {name}")
    yield acting_as(url, name)
    run(url, f"REASSIGN OWNED BY {name} TO CURRENT_USER", f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.fixture(params=PLACES)
def db_url(server: str, template: str, request: pytest.FixtureRequest) -> Iterator[str]:
    match request.param:
        case "a Turkish locale":
            how = "LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LC_COLLATE 'C' LC_CTYPE 'C'"
        case "the C locale":
            how = "LC_COLLATE 'C' LC_CTYPE 'C'"
        case "settings":
            with clone(server, template) as url:
                name = url.partition("?")[0].rpartition("/")[2]
                run(on(server, "postgres"), *(f"ALTER DATABASE {name} SET {s} = '{v}'" for s, v in SETTINGS.items()))
                yield url
            return
        case "row security":
            with clone(server, template) as url, behind_policies(url) as seen:
                yield seen
            return
        case _:
            with clone(server, template) as url:
                yield url
            return
    with made(server, how) as url:
        yield url
