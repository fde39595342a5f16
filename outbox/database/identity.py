"""Which database this is, and which one the installation was last seen in."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, tuple_row

from idem.outbox.database.memory import newest


@dataclass(frozen=True, slots=True)
class Identity:
    """Which database this is. `moved` is how far its write-ahead log has come, in bytes.

    `database_oid` and `table_oid` are the server's numbers of the database and of `idem.installation`: a copy that took
    the database's place, and tables that a dump has made, have others.
    """

    system_identifier: int
    timeline: int
    database_name: str
    database_oid: int
    table_oid: int | None
    moved: int


@dataclass(frozen=True, slots=True)
class Known:
    """Which database the installation was last seen in. `recovered_at`: when `idem recover` last spoke about it;
    `doubted_at`: when a daemon last doubted every open row."""

    environment: str
    system_identifier: int
    timeline: int
    database_name: str
    database_oid: int
    table_oid: int
    recovered_at: datetime | None
    doubted_at: datetime | None

    @property
    def recovery_statement(self) -> datetime | None:
        """The newest statement about lost commits."""
        return newest(self.recovered_at, self.doubted_at)


IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
       ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer AS timeline,
       current_database()::text AS database_name,
       (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())::bigint AS database_oid,
       to_regclass('idem.installation')::oid::bigint AS table_oid,
       (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint AS moved
"""
KNOWN = """
SELECT environment, system_identifier, timeline, database_name, database_oid, table_oid, recovered_at, doubted_at
  FROM idem.installation
"""
KNOWN_LOCKED = KNOWN + " FOR UPDATE"
ADOPT = """
UPDATE idem.installation SET system_identifier = %(system_identifier)s, timeline = %(timeline)s,
       database_name = %(database_name)s, database_oid = %(database_oid)s, table_oid = %(table_oid)s,
       changed_at = statement_timestamp(),
       doubted_at = CASE WHEN %(doubted)s THEN statement_timestamp() ELSE doubted_at END
"""
BEATS = """
SELECT statement_timestamp(), d.id, d.heartbeats
  FROM (SELECT 1) AS always (one) LEFT JOIN idem.daemons d ON d.id = ANY (%(daemons)s)
"""
SPOKEN = """
UPDATE idem.installation SET recovered_at = statement_timestamp(),
       lost_at = CASE WHEN %(lost)s THEN statement_timestamp() ELSE lost_at END
"""


async def read(connection: AsyncConnection[Any]) -> Identity:
    """Which database this connection leads to."""
    cursor = connection.cursor(row_factory=class_row(Identity))
    identity = await (await cursor.execute(IDENTITY)).fetchone()
    assert identity is not None
    return identity


async def known(connection: AsyncConnection[Any], *, lock: bool = False) -> Known | None:
    """The installation's record; None: idem is not installed here. `lock`: until the end of the transaction."""
    cursor = connection.cursor(row_factory=class_row(Known))
    return await (await cursor.execute(KNOWN_LOCKED if lock else KNOWN)).fetchone()


async def beats(connection: AsyncConnection[Any], daemons: Collection[str]) -> tuple[datetime, dict[str, int]]:
    """How many heartbeats of these daemons the database has kept, and its time."""
    cursor = connection.cursor(row_factory=tuple_row)
    found = await (await cursor.execute(BEATS, {"daemons": list(daemons)})).fetchall()
    return found[0][0], {daemon: number for _, daemon, number in found if daemon is not None}


async def adopt(connection: AsyncConnection[Any], identity: Identity, *, doubted: bool = False) -> None:
    """Write down that the installation lives in this database from now on. `doubted`: every open row was doubted."""
    await connection.execute(ADOPT, {**asdict(identity), "doubted": doubted})


async def spoken(connection: AsyncConnection[Any], *, lost: bool) -> None:
    """Write down that `idem recover` has said what the change lost, so that no daemon judges it again."""
    await connection.execute(SPOKEN, {"lost": lost})


def differs(was: Known, identity: Identity) -> bool:
    """Whether the installation was last seen in another database."""
    return was.timeline != identity.timeline or not same_but_for_timeline(was, identity)


def same_but_for_timeline(was: Known, identity: Identity) -> bool:
    """Whether it is the same database, on this timeline or on another one."""
    return (was.system_identifier, was.database_name, was.database_oid, was.table_oid) == (
        identity.system_identifier,
        identity.database_name,
        identity.database_oid,
        identity.table_oid,
    )


def what(was: Known, identity: Identity, went_back: bool) -> str:
    """What has changed, for people."""
    if went_back:
        return "the database is at an earlier point than this process has seen"
    if was.system_identifier != identity.system_identifier:
        return "another database cluster"
    if was.database_name != identity.database_name:
        return f"database {identity.database_name!r} instead of {was.database_name!r}"
    if was.database_oid != identity.database_oid:
        return "another database under the same name"
    if was.table_oid != identity.table_oid:
        return "tables of idem that were created again, e.g. from a dump"
    return f"timeline {identity.timeline} instead of {was.timeline}"
