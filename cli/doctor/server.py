"""The server: its version, the settings for durable commits, and what a role or a database overrides."""

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning

MINIMUM = 140000

# `reset_val` is the value at the start of the session, from role and database, not what we have set.
SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
       (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'synchronous_commit') AS synchronous_commit,
       pg_is_in_recovery() AS in_recovery,
       (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'default_transaction_read_only') AS read_only,
       current_user::text AS role, current_database()::text AS database
"""


async def version(examination: Examination) -> Findings:
    """Check that this server is new enough and accepts writes."""
    found = await examination.one(SERVER)
    where = f"PostgreSQL {found['version'].split()[0]}, database {found['database']}, as {found['role']}"
    if found["number"] < MINIMUM:
        yield error(f"{where}: idem needs 14 or newer", "Upgrade the server, or use another one")
    elif found["in_recovery"]:
        yield error(
            f"{where}: it is a standby and accepts no writes, so idem can accept and settle nothing",
            "Point IDEM_DATABASE_URL to the primary, e.g. with target_session_attrs=read-write",
        )
    elif found["read_only"] == "on":
        yield error(
            f"{where}: transactions are read-only by default, so idem can accept and settle nothing",
            "Look for default_transaction_read_only (ALTER ROLE, ALTER DATABASE, postgresql.conf); some hosts set "
            "it when a disk is full",
        )
    yield ok(where)


# Settings of the role, of the database, and of both together; 0 means all.
OVERRIDES = """
SELECT coalesce(r.rolname, '') AS role, s.setdatabase <> 0 AS here, split_part(c.setting, '=', 1) AS name,
       substr(c.setting, strpos(c.setting, '=') + 1) AS value
  FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS c (setting)
  LEFT JOIN pg_roles r ON r.oid = s.setrole
 WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
   AND split_part(c.setting, '=', 1) IN (
       'synchronous_commit', 'statement_timeout')
 ORDER BY 1, 2, 3
"""


async def durability(examination: Examination) -> Findings:
    """Check that an acknowledged commit survives a crash of this server."""
    found = await examination.one(SERVER)
    for name, what in (
        ("fsync", "a crash of the machine loses acknowledged commits, among them claims, so calls repeat"),
        ("full_page_writes", "a crash of the machine may leave torn pages and corrupt the database"),
    ):
        if found[name] == "off":
            yield error(f"{name} is off: {what}", f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()")
    overrides = await examination.all(OVERRIDES)
    off = [each for each in overrides if each["name"] == "synchronous_commit" and each["value"] == "off"]
    for each in off:
        whose = f"role {each['role']}" if each["role"] else f"database {found['database']}"
        yield warning(
            f"synchronous_commit is off for {whose}: a crash may lose a commit that does not write to idem (idem "
            "switches it on for each transaction that writes to its tables)",
            f"ALTER {'ROLE' if each['role'] else 'DATABASE'} {each['role'] or found['database']} "
            f"{'IN DATABASE ' + found['database'] + ' ' if each['role'] and each['here'] else ''}"
            "RESET synchronous_commit",
        )
    if found["synchronous_commit"] == "off" and not off:
        yield warning(
            "synchronous_commit is off on the server: a crash may lose a commit that does not write to idem (idem "
            "switches it on for each transaction that writes to its tables)",
            "ALTER SYSTEM RESET synchronous_commit; SELECT pg_reload_conf()",
        )
    yield ok("fsync, full_page_writes and synchronous_commit are on for all roles")


async def timeouts(examination: Examination) -> Findings:
    """Check the timeouts of roles and databases, which apply to applications, not to idem's sessions."""
    for each in await examination.all(OVERRIDES):
        if each["name"] == "statement_timeout" and each["role"] and _is_short(each["value"]):
            yield warning(
                f"statement_timeout = {each['value']} for role {each['role']}: it may cancel an accept in the "
                "application's transaction, and the client gets 503 (idem's own sessions set their own)",
                f"ALTER ROLE {each['role']} SET statement_timeout = '5s', or RESET it",
            )
    yield ok("no role and no database has a timeout that is too short for idem")


def _is_short(value: str) -> bool:
    digits = value.removesuffix("ms").strip()
    return digits.isdigit() and 0 < int(digits) < 1000
