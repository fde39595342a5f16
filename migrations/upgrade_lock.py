"""The advisory lock that lets one upgrade run at a time. The wait is bounded, and the error names the holder.

Any role that may connect can hold any advisory lock for as long as it likes, so every wait for one must be bounded.
"""

from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

UPGRADE_LOCK: Final = 0x1DE0_0001
"""The advisory lock that every upgrade of a database holds."""

HELD: Final = (
    "another session has held the advisory lock {lock}, by which upgrades of idem's schema take turns, for more than "
    "{seconds:g} s. Nothing is changed. "
)
UNSEEN: Final = (
    "This role may not read pg_locks, so a superuser must run: SELECT pid FROM pg_locks WHERE locktype = 'advisory' "
    "AND objid = {lock}"
)
LEFT: Final = "No session holds it any more: run this again"
END_IT: Final = (
    "If that is another upgrade, let it end and run this again. If it is not, end that session, as its own role, as a "
    "superuser or as a member of pg_signal_backend: SELECT pg_terminate_backend(pid)"
)

HOLDERS = """
SELECT string_agg(CASE
           WHEN l.pid IS NULL THEN format(
               'prepared transaction %L of role %s since %s (end it with ROLLBACK PREPARED)',
               p.gid, p.owner, date_trunc('second', p.prepared))
           WHEN a.backend_start IS NULL THEN format(
               'pid %s, role %s, application %L; since when is not shown to role %s, but to a superuser and to members '
               'of pg_read_all_stats', l.pid, coalesce(a.usename, 'unknown'), a.application_name, current_user)
           ELSE format(
               'pid %s, role %s, application %L, connected since %s, %s', l.pid, coalesce(a.usename, 'unknown'),
               a.application_name, date_trunc('second', a.backend_start),
               coalesce('in its transaction since ' || date_trunc('second', a.xact_start),
                        'without a transaction since ' || date_trunc('second', a.state_change)))
           END, '; ' ORDER BY l.pid)
  FROM pg_catalog.pg_locks l
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_catalog.pg_prepared_xacts p
         ON l.pid IS NULL AND CAST(p.transaction AS text) = split_part(l.virtualtransaction, '/', 2)
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
   AND CAST(l.classid AS bigint) = CAST(:lock AS bigint) >> 32
   AND CAST(l.objid AS bigint) = CAST(:lock AS bigint) & 4294967295
"""


def holders(connection: Connection, seconds: float) -> str:
    """The error after waiting `seconds` for the lock; it looks up on this connection who holds it."""
    held = HELD.format(lock=UPGRADE_LOCK, seconds=seconds)
    try:
        with connection.begin_nested():
            found = connection.scalar(text(HOLDERS), {"lock": UPGRADE_LOCK})
    except DBAPIError:
        return held + UNSEEN.format(lock=UPGRADE_LOCK)
    return held + (f"It is held by {found}. {END_IT}" if found else LEFT)


def block(seconds: float) -> str:
    """Statements of PL/pgSQL that take the lock until the end of the transaction, or raise what `holders` says.

    They need a variable `holder` of type text, and the session's lock_timeout is the bound of the wait.
    """
    asked = HOLDERS.strip().replace("SELECT string_agg", "SELECT INTO holder string_agg", 1)
    asked = asked.replace(":lock", str(UPGRADE_LOCK))
    held, unseen, left, end = (
        each.format(lock=UPGRADE_LOCK, seconds=seconds).replace("'", "''") for each in (HELD, UNSEEN, LEFT, END_IT)
    )
    return f"""
    BEGIN
        PERFORM pg_advisory_xact_lock({UPGRADE_LOCK});
    EXCEPTION WHEN lock_not_available THEN
        BEGIN
            {asked};
            holder := coalesce('It is held by ' || holder || '. {end}', '{left}');
        EXCEPTION WHEN insufficient_privilege THEN
            holder := '{unseen}';
        END;
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = '{held}' || holder;
    END;"""
