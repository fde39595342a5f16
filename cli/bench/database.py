"""The database of a bench: created, held by a session, dropped at the end.

A session stays connected to it for the whole run. PostgreSQL refuses to drop a database that somebody is connected to,
so a later run finds out whether the run of a left database is over by trying to drop it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from idem.migrations import runner
from idem.outbox.database import session
from idem.outbox.values.errors import ConfigError

PREFIX = "idem_bench_"
ENVIRONMENT = "bench"
NAME = "idem bench"
"""The name of its sessions."""
MARK = "made by idem bench, which drops it"
"""The comment on each database of a bench: no other one is ever dropped."""
NO_RIGHT = (
    "the bench makes a database of its own, and this role may not: ALTER ROLE {role} CREATEDB as a superuser, or use a "
    "role that may"
)
# A new database has no session yet. Without this lock, a second run that begins at once would drop it as a left one.
TURN = "SELECT pg_advisory_lock(hashtext('idem bench')::bigint)"
PATIENT = session.Timeouts(statement=120.0, lock=120.0)
"""Of sessions that create and drop databases."""


@contextlib.contextmanager
def database(url: str, say: Callable[[str], None], *, schema: bool = True) -> Iterator[str]:
    """Create a database with idem's schema on this server, and give its URL; drop it at the end. `schema` False: empty.

    Raises ConfigError if the role may not create a database.
    """
    name = PREFIX + secrets.token_hex(4)
    made = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    with contextlib.ExitStack() as stack:
        with session.connect_sync(url, name=NAME, timeouts=PATIENT) as admin:
            admin.execute(TURN)
            stack.callback(_drop, url, name, say)
            try:
                admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            except psycopg.errors.InsufficientPrivilege:
                raise ConfigError(NO_RIGHT.format(role=admin.info.user)) from None
            admin.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(name), sql.Literal(MARK)))
            stack.enter_context(session.connect_sync(made, name=NAME))
        if schema:
            runner.upgrade(made, environment=ENVIRONMENT)
        yield made


LEFT = """
SELECT d.datname::text FROM pg_database d
 WHERE d.datname ~ '^idem_bench_[0-9a-f]{8}$' AND shobj_description(d.oid, 'pg_database') = %(mark)s ORDER BY 1
"""


def drop_left(url: str, say: Callable[[str], None]) -> None:
    """Drop the databases of killed runs; leave those of running ones, and tell of each."""
    with session.connect_sync(url, name=NAME, timeouts=PATIENT) as admin:
        admin.execute(TURN)
        for (name,) in admin.execute(LEFT, {"mark": MARK}).fetchall():
            try:
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
            except psycopg.errors.ObjectInUse:
                say(f"{name} stays: another bench runs in it")
            except psycopg.errors.InsufficientPrivilege:
                say(f"{name} was left by a killed bench of another role, who can drop it: DROP DATABASE {name}")
            else:
                say(f"{name} was left by a killed bench and is dropped")


def _drop(url: str, name: str, say: Callable[[str], None]) -> None:
    try:
        with session.connect_sync(url, name=NAME, timeouts=PATIENT) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
    except psycopg.Error as error:
        say(f"{name} could not be dropped ({error}): the next bench drops it, or DROP DATABASE {name}")
