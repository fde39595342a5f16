"""Which database this is, and which one the installation was last seen in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row


@dataclass(frozen=True, slots=True)
class Identity:
    """Which database this is. `moved` is how far its write-ahead log has come, in bytes; `started` when it started."""

    system_identifier: int
    timeline: int
    database_name: str
    moved: int
    started: datetime


@dataclass(frozen=True, slots=True)
class Known:
    """Which database the installation was last seen in. `recovered_at`: when `idem recover` last spoke about it;
    `changed_at`: when it was last found in another one."""

    environment: str
    system_identifier: int
    timeline: int
    database_name: str
    recovered_at: datetime | None
    changed_at: datetime | None


IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
       ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer AS timeline,
       current_database()::text AS database_name,
       (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS moved,
       pg_postmaster_start_time() AS started
"""
KNOWN = """
SELECT environment, system_identifier, timeline, database_name, recovered_at, changed_at FROM idem.installation
"""
KNOWN_LOCKED = KNOWN + " FOR UPDATE"
ADOPT = """
UPDATE idem.installation SET system_identifier = %(system)s, timeline = %(timeline)s, database_name = %(name)s,
       changed_at = statement_timestamp()
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


async def adopt(connection: AsyncConnection[Any], identity: Identity) -> None:
    """Write down that the installation lives in this database from now on."""
    parameters = {"system": identity.system_identifier, "timeline": identity.timeline, "name": identity.database_name}
    await connection.execute(ADOPT, parameters)


async def spoken(connection: AsyncConnection[Any], *, lost: bool) -> None:
    """Write down that `idem recover` has said what the change lost, so that no daemon judges it again."""
    await connection.execute(SPOKEN, {"lost": lost})


def differs(was: Known, identity: Identity) -> bool:
    """Whether the installation was last seen in another database."""
    return (was.system_identifier, was.timeline, was.database_name) != (
        identity.system_identifier,
        identity.timeline,
        identity.database_name,
    )


def what(was: Known, identity: Identity, went_back: bool) -> str:
    """What has changed, for people."""
    if went_back:
        return "the write-ahead log went back behind what this process had seen"
    if was.system_identifier != identity.system_identifier:
        return "another database cluster"
    if was.database_name != identity.database_name:
        return f"database {identity.database_name!r} instead of {was.database_name!r}"
    return f"timeline {identity.timeline} instead of {was.timeline}"
