"""Applies the migrations: one process at a time, with a lock timeout, in one transaction.

A strong lock that waits makes every reader behind it wait (IB-157), so each attempt gives up after `lock_timeout`
seconds with nothing changed, and the whole upgrade is retried a few times.
"""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, OperationalError

from idem.migrations import grants, ownership
from idem.migrations.ownership import refuse_others
from idem.migrations.server_text import said
from idem.migrations.sessions import LOCK_TIMEOUTS, LOCK_WAIT, milliseconds, state_of
from idem.migrations.sessions import SETTINGS as SETTINGS
from idem.migrations.sessions import MigrationError as MigrationError
from idem.migrations.sessions import engine as engine
from idem.migrations.statements import SCRIPTS
from idem.migrations.upgrade_lock import UPGRADE_LOCK, holders

MINIMUM_SERVER = 140000


@dataclass(frozen=True, slots=True)
class Schema:
    """The revision of a database: `current` is None before the first upgrade."""

    current: str | None
    head: str

    @property
    def up_to_date(self) -> bool:
        return self.current == self.head


ENCODING: Final = "UTF8"


def _config(scripts: Path, connection: Connection | None = None, output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output) if output else Config()
    config.set_main_option("script_location", str(scripts))
    config.attributes["connection"] = connection
    return config


def head(scripts: Path = SCRIPTS) -> str:
    """The newest revision that this code knows; `scripts` is the folder with Alembic's env.py and the revisions."""
    found = ScriptDirectory.from_config(_config(scripts)).get_current_head()
    assert found is not None
    return found


def schema(connection: Connection, scripts: Path = SCRIPTS) -> Schema:
    """The revision that the database has, and the one that it should have."""
    context = MigrationContext.configure(
        connection, opts={"version_table": "alembic_version", "version_table_schema": "idem"}
    )
    return Schema(context.get_current_revision(), head(scripts))


def offline_sql(environment: str = "development", scripts: Path = SCRIPTS) -> str:
    """All statements that create the schema, to read or to run by hand; `environment` names the installation."""
    output = io.StringIO()
    command.upgrade(_config(scripts, output=output), "head", sql=True)
    named = environment.replace("'", "''")
    register = REGISTER.strip().replace(":environment", f"'{named}'")
    # What other roles may create in `public` is found by no statement of it.
    path = f"SET search_path = {SETTINGS['search_path']};"
    whose = ownership.script()
    made = f"CREATE SCHEMA IF NOT EXISTS idem;\n{whose}\n{output.getvalue()}\n{whose}"
    return f"{path}\n{made}\n{register};\nRESET search_path;\n"


def upgrade(
    url: str,
    *,
    environment: str,
    evidence_retention: float | None = None,
    lock_timeout: float = 5.0,
    attempts: int = 5,
    lock_wait: float = LOCK_WAIT,
    scripts: Path = SCRIPTS,
) -> Schema:
    """Bring the schema to the head. Several starters may call this at once: one works, the others wait for it.

    `environment` names the installation if it is new. `evidence_retention` (seconds; None leaves it) is what the
    database's guards hold. `lock_timeout` in seconds is for each lock of an attempt, `lock_wait` is how many seconds it
    waits for the upgrade of another starter. `scripts` is the folder with Alembic's env.py and the revisions. Raises
    MigrationError.
    """
    database = engine(url)
    for attempt in range(1, attempts + 1):
        try:
            with database.connect() as connection:
                return _upgrade(connection, scripts, environment, evidence_retention, lock_timeout, lock_wait)
        except OperationalError as error:
            if state_of(error) not in LOCK_TIMEOUTS:
                raise MigrationError(
                    f"cannot reach the database, or it refused the upgrade: {said(error.orig)}"
                ) from error
            if attempt == attempts:
                raise MigrationError(
                    f"another session locked a table of idem for more than {lock_timeout:g} s, {attempts} times; "
                    "nothing was changed. Find long transactions in pg_stat_activity and run this again"
                ) from error
            time.sleep(min(2.0**attempt / 4, 5.0))
        except DBAPIError as error:
            raise MigrationError(f"the upgrade failed and was rolled back completely: {said(error.orig)}") from error
        except CommandError as error:
            with database.connect() as connection:
                found = schema(connection, scripts)
            raise MigrationError(
                f"the database is at a revision that this version of idem does not know ({found.current}; this one "
                f"needs {found.head}). Use the version of idem that created it, or a newer one"
            ) from error
    raise AssertionError("unreachable")


def _upgrade(
    connection: Connection,
    scripts: Path,
    environment: str,
    evidence_retention: float | None,
    lock_timeout: float,
    lock_wait: float,
) -> Schema:
    version = int(str(connection.scalar(text("SHOW server_version_num"))))
    if version < MINIMUM_SERVER:
        raise MigrationError(f"idem needs PostgreSQL 14 or newer; this server is {version // 10000}")
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != ENCODING:
        raise MigrationError(
            f"the encoding of this database is {encoding}, and idem needs {ENCODING}, because clients and providers "
            f"may write every character: create one with ENCODING '{ENCODING}' TEMPLATE template0"
        )
    refuse_others(connection)
    _lock_upgrades(connection, lock_wait)
    try:
        _wait_at_most(connection, lock_timeout)
        refuse_others(connection)
        # IF NOT EXISTS asks for the right to create schemas even where there is nothing to create.
        if connection.scalar(text("SELECT to_regnamespace('idem')")) is None:
            connection.execute(text("CREATE SCHEMA idem"))
        # Made here, because Alembic takes one that is there by then, and another role may have made it meanwhile.
        if connection.scalar(text("SELECT to_regclass('idem.alembic_version')")) is None:
            connection.execute(text(VERSIONS))
        command.upgrade(_config(scripts, connection), "head")
        _register(connection, environment, evidence_retention)
        refuse_others(connection)
        connection.commit()
        return schema(connection, scripts)
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": UPGRADE_LOCK})
        connection.commit()


def _lock_upgrades(connection: Connection, seconds: float) -> None:
    # For the session, so that nothing that an upgrade commits or rolls back gives it away.
    try:
        _wait_at_most(connection, seconds)
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": UPGRADE_LOCK})
        connection.commit()
    except OperationalError as error:
        connection.rollback()
        if state_of(error) not in LOCK_TIMEOUTS:
            raise
        raise MigrationError(holders(connection, seconds)) from error


def _wait_at_most(connection: Connection, seconds: float) -> None:
    connection.execute(text("SELECT set_config('lock_timeout', :ms, true)"), {"ms": milliseconds(seconds)})


VERSIONS = """
CREATE TABLE idem.alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))
"""

REGISTER = """
INSERT INTO idem.installation (environment, secret, system_identifier, timeline, database_name, database_oid,
                               table_oid)
SELECT :environment, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
       (SELECT system_identifier FROM pg_control_system()),
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer END,
       current_database(), (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()),
       'idem.installation'::regclass::oid
ON CONFLICT DO NOTHING
"""


KEEP = "UPDATE idem.installation SET evidence_retention = make_interval(secs => :seconds)"


def _register(connection: Connection, environment: str, evidence_retention: float | None) -> None:
    connection.execute(text(REGISTER), {"environment": environment})
    if evidence_retention is not None:
        connection.execute(text(KEEP), {"seconds": evidence_retention})


OWNER = text("""
SELECT pg_get_userbyid(n.nspowner) AS owner, current_user AS us, pg_has_role(n.nspowner, 'USAGE') AS may
  FROM pg_namespace n WHERE n.nspname = 'idem'
""")


def grant(url: str, role: str, kind: grants.GrantKind, tenants: Sequence[str] = ()) -> list[str]:
    """Give a role the rights of its kind, as the owner of the schema; the statements. Raises MigrationError."""
    try:
        given = grants.statements(role, kind, tenants)
        with engine(url).begin() as connection:
            found = connection.execute(OWNER).one_or_none()
            if found is None:
                raise MigrationError(
                    "this database has no idem schema. Run `idem db upgrade` first, or restore its backup"
                )
            if not found.may:
                # PostgreSQL itself would only warn, and grant nothing.
                raise MigrationError(
                    f"role {role!r} got no rights: only {found.owner}, the owner of schema idem, may give them, "
                    f"and this is {found.us}"
                )
            refuse_others(connection)
            for statement in given:
                connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
        return given
    except ValueError as error:
        raise MigrationError(f"role {role!r} got no rights: {error}") from error
    except DBAPIError as error:
        hint = ""
        if getattr(error.orig, "sqlstate", None) == "42704":
            hint = f": create it first, as in CREATE ROLE {grants.quoted(role)} LOGIN PASSWORD '…'"
        raise MigrationError(
            f"role {role!r} got no rights, and nothing was changed: {said(error.orig)}{hint}"
        ) from error
