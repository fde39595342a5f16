"""Applies idem's schema from a revision of the user's own Alembic, in their transaction and on their connection.

Nothing here goes through Alembic's commands or its `op` and `context`: those belong to the revision that is running.
"""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from idem.migrations import ownership
from idem.migrations.runner import MINIMUM_SERVER, REGISTER, VERSIONS, MigrationError
from idem.migrations.server_text import said
from idem.migrations.sessions import LOCK_TIMEOUTS, milliseconds, state_of
from idem.migrations.statements import SCRIPTS, Revision, revisions
from idem.migrations.upgrade_lock import UPGRADE_LOCK, block, holders


def include_name(name: str | None, type_: str, parent_names: MutableMapping[str, str | None]) -> bool:
    """Whether the user's autogenerate looks at this: at everything but what is in the schema `idem`.

    For `context.configure(include_name=include_name)` in their env.py, or to be called from a filter of their own.
    """
    if type_ == "schema":
        return name != "idem"
    return parent_names.get("schema_name") != "idem"


def upgrade_in(op_or_connection: Any, environment: str | None = None, *, lock_timeout: float = 5.0) -> None:
    """Apply what is missing of idem's schema, inside the transaction that is open. Nothing is committed here.

    Takes the `op` of a running revision (offline too: what it writes then looks itself what is missing), or a
    SQLAlchemy Connection over psycopg or asyncpg (`await connection.run_sync(upgrade_in)`). `environment` names the
    installation if it is new, else it must be its name; without it IDEM_ENVIRONMENT does. `lock_timeout` in seconds is
    for each lock. Raises MigrationError, after which the transaction is to be rolled back.
    """
    named = environment or os.environ.get("IDEM_ENVIRONMENT") or None
    if isinstance(op_or_connection, Connection):
        apply(op_or_connection, named, lock_timeout)
    elif hasattr(op_or_connection, "get_context"):
        context = op_or_connection.get_context()
        if context.as_sql:
            context.impl.static_output(script(named or _nameless(), lock_timeout))
        else:
            apply(context.connection, named, lock_timeout)
    else:
        raise TypeError(
            "upgrade_in takes Alembic's op or a SQLAlchemy Connection, not "
            f"{type(op_or_connection).__name__}; over an AsyncConnection: await connection.run_sync(upgrade_in)"
        )


INSTALLED = text("""
SELECT current_setting('server_version_num')::integer AS server,
       to_regnamespace('idem') IS NOT NULL AS has_schema,
       to_regclass('idem.alembic_version') IS NOT NULL AS has_versions
""")
REVISION = text("SELECT version_num FROM idem.alembic_version")
ENVIRONMENT = text("SELECT environment FROM idem.installation")
FIRST = text("SELECT current_schema()")
IDEM_FIRST = (
    "on this connection names without a schema mean the schema idem first, so your own tables would be looked for "
    "among idem's. A role of the name idem does that, by its default search_path: use another role, or run "
    "ALTER ROLE idem SET search_path = public"
)


def apply(connection: Connection, environment: str | None, lock_timeout: float = 5.0, scripts: Path = SCRIPTS) -> None:
    """What `upgrade_in` does on a connection, with the revisions of a folder of scripts. Raises MigrationError."""
    try:
        with _patience(connection, lock_timeout):
            _lock_upgrades(connection, lock_timeout)
            found = connection.execute(INSTALLED).one()
            if found.server < MINIMUM_SERVER:
                raise MigrationError(f"idem needs PostgreSQL 14 or newer; this server is {found.server // 10000}")
            if not found.has_schema:
                connection.execute(text("CREATE SCHEMA idem"))
            if connection.scalar(FIRST) == "idem":
                raise MigrationError(IDEM_FIRST)
            path = connection.scalar(PATH)
            connection.execute(SET_PATH, {"value": OURS})
            ownership.refuse_others(connection)
            if not found.has_versions:
                connection.execute(text(VERSIONS))
            known = revisions(scripts)
            at = connection.scalar(REVISION)
            names = [revision.name for revision in known]
            if at is not None and at not in names:
                raise MigrationError(
                    f"the database is at revision {at}, which this version of idem does not know. Use the version of "
                    "idem that created it, or a newer one"
                )
            if at is None and environment is None:
                _nameless()
            for revision in known[0 if at is None else names.index(at) + 1 :]:
                for statement in revision.statements:
                    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
                connection.execute(text(_moves_on(revision)))
            if environment is not None:
                connection.execute(text(REGISTER), {"environment": environment})
                there = connection.scalar(ENVIRONMENT)
                if there != environment:
                    raise MigrationError(_wrong_database(str(there), environment))
            ownership.refuse_others(connection)
            connection.execute(SET_PATH, {"value": path})
    except DBAPIError as error:
        if state_of(error) in LOCK_TIMEOUTS:
            raise MigrationError(
                f"another session locked a table of idem for more than {lock_timeout:g} s. Roll this back, and "
                "nothing is changed. Find long transactions in pg_stat_activity and run it again"
            ) from error
        raise MigrationError(f"idem's schema could not be upgraded: {said(error.orig)}") from error


def _lock_upgrades(connection: Connection, seconds: float) -> None:
    try:
        with connection.begin_nested():
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": UPGRADE_LOCK})
    except DBAPIError as error:
        if state_of(error) != "55P03":
            raise
        raise MigrationError(holders(connection, seconds)) from error


OURS: Final = "pg_catalog, pg_temp"
"""The search_path of each statement of a revision: what other roles may create in `public` is not found by it."""
PATH = text("SELECT current_setting('search_path')")
SET_PATH = text("SELECT pg_catalog.set_config('search_path', :value, true)")
SHOW = text("SELECT current_setting('lock_timeout')")
SET = text("SELECT set_config('lock_timeout', :value, true)")


@contextmanager
def _patience(connection: Connection, seconds: float) -> Iterator[None]:
    # What the revision does afterwards waits as long as it did before.
    before = connection.scalar(SHOW)
    connection.execute(SET, {"value": milliseconds(seconds)})
    connection.execute(text("SELECT set_config('idem.upgrading', 'yes', true)"))
    if connection.scalar(text("SELECT current_setting('idem.upgrading', true)")) != "yes":
        raise MigrationError(
            "this connection is in AUTOCOMMIT mode, which could leave half a schema behind. Call upgrade_in in a "
            "transaction, outside of op.get_context().autocommit_block()"
        )
    yield
    connection.execute(SET, {"value": before})


def script(environment: str, lock_timeout: float = 5.0, scripts: Path = SCRIPTS) -> str:
    """What `upgrade_in` does, as text: each revision looks whether it is the next one, so it may be run at any time."""
    name = environment.replace("'", "''")
    wrong = _wrong_database("%", environment.replace("%", "%%")).replace("'", "''")
    parts = [
        f"""DO $idem$ DECLARE holder text; others text; BEGIN
    PERFORM set_config('idem.lock_timeout', current_setting('lock_timeout'), true);
    PERFORM set_config('lock_timeout', '{milliseconds(lock_timeout)}', true);
{block(lock_timeout)}
    IF to_regnamespace('idem') IS NULL THEN
        CREATE SCHEMA idem;
    END IF;
    IF current_schema() = 'idem' THEN
        RAISE EXCEPTION '{IDEM_FIRST.replace("'", "''")}';
    END IF;
    PERFORM set_config('idem.search_path', current_setting('search_path'), true);
    PERFORM set_config('search_path', '{OURS}', true);
{ownership.block()}
    IF to_regclass('idem.alembic_version') IS NULL THEN
        {VERSIONS.strip()};
    END IF;
END $idem$;
SELECT pg_catalog.set_config('search_path', '{OURS}', true);""",
        *map(_if_next, revisions(scripts)),
        REGISTER.strip().replace(":environment", f"'{name}'") + ";",
        ownership.script(),
        f"""DO $idem$ DECLARE there text := (SELECT environment FROM idem.installation); BEGIN
    IF there <> '{name}' THEN
        RAISE EXCEPTION '{wrong}', there;
    END IF;
END $idem$;
SELECT pg_catalog.set_config('search_path', current_setting('idem.search_path'), true),
       pg_catalog.set_config('lock_timeout', current_setting('idem.lock_timeout'), true);""",  # noqa: S608
    ]
    return "\n\n".join(parts)


def _if_next(revision: Revision) -> str:
    at = "NULL" if revision.after is None else f"'{revision.after}'"
    quoted = "\n".join(f"    EXECUTE $idem_statement${each}$idem_statement$;" for each in revision.statements)
    return f"""DO $idem_revision$ BEGIN
IF (SELECT version_num FROM idem.alembic_version) IS NOT DISTINCT FROM {at} THEN
{quoted}
    {_moves_on(revision)};
END IF;
END $idem_revision$;"""  # noqa: S608


def _moves_on(revision: Revision) -> str:
    if revision.after is None:
        return f"INSERT INTO idem.alembic_version (version_num) VALUES ('{revision.name}')"  # noqa: S608
    return f"UPDATE idem.alembic_version SET version_num = '{revision.name}'"  # noqa: S608


def _nameless() -> Any:
    raise MigrationError(
        "the environment is not set, and a new installation keeps the name permanently. Pass it, e.g. upgrade_in(op, "
        'environment="production"), or set IDEM_ENVIRONMENT'
    )


def _wrong_database(there: str, wanted: str) -> str:
    return f"this database is environment {there}, but the migration says {wanted}: it is the wrong one of the two"
