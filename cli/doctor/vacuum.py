"""Vacuum: whether dead rows of the hot tables are removed, and what prevents it (IB-048)."""

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, monitor, ok, warning
from idem.outbox.values.plural import several

HOT = {
    "outbox": ("autovacuum_vacuum_scale_factor", "autovacuum_vacuum_cost_delay"),
    "idempotency_keys": ("autovacuum_vacuum_scale_factor",),
    "proofs": ("autovacuum_vacuum_scale_factor",),
}
"""The tables that change with every call, and the settings that the migration set for each."""

DEAD = 50_000
"""Dead rows, in excess of the live ones, above which a claim is slow; autovacuum runs far earlier."""

TABLES = """
SELECT c.relname::text AS name, coalesce(c.reloptions, '{}') AS options,
       coalesce(s.n_live_tup, 0) AS live, coalesce(s.n_dead_tup, 0) AS dead,
       extract(epoch FROM statement_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8 AS vacuumed,
       current_setting('autovacuum') AS autovacuum, current_setting('track_counts') AS track_counts
  FROM pg_class c LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relname = ANY (%(names)s) ORDER BY c.relname
"""


async def vacuum(examination: Examination) -> Findings:
    """Check autovacuum, the hot tables' own settings, their dead rows and last vacuum."""
    tables = await examination.all(TABLES, {"names": list(HOT)})
    counts = "; ".join(
        f"{each['name']} {each['dead']} dead of {each['live'] + each['dead']}, last vacuum "
        + ("never" if each["vacuumed"] is None else f"{age(each['vacuumed'])} ago")
        for each in tables
    )
    for name in ("autovacuum", "track_counts"):
        if tables and tables[0][name] == "off":
            yield error(
                f"{name} is off: PostgreSQL never removes dead rows, and claims get slower until they time out "
                f"({counts})",
                f"ALTER SYSTEM RESET {name}; SELECT pg_reload_conf()",
            )
    for each in tables:
        options = dict(option.split("=", 1) for option in each["options"])
        if options.get("autovacuum_enabled") in ("off", "false", "0", "no"):
            yield error(
                f"autovacuum is switched off for idem.{each['name']} ({counts})",
                f"ALTER TABLE idem.{each['name']} RESET (autovacuum_enabled)",
            )
        lost = [name for name in HOT[each["name"]] if name not in options]
        if lost:
            yield warning(
                f"idem.{each['name']} has lost its own {', '.join(lost)}: on a busy server its vacuum runs too late",
                f"Restore the settings of migrations/versions/0001_*.sql with ALTER TABLE idem.{each['name']} SET",
            )
        if each["dead"] > DEAD + each["live"]:
            yield warning(
                f"idem.{each['name']} has far more dead rows than it should: {counts}",
                f"VACUUM idem.{each['name']}; if the number stays, something prevents it: see `snapshot`",
            )
    yield ok(counts)


# Without pg_monitor a role sees only the process of other roles' sessions. One vacuum does not prevent another.
SESSIONS = """
SELECT a.pid, a.usename::text AS role, a.application_name::text AS name, a.state::text,
       extract(epoch FROM statement_timestamp() - a.xact_start)::float8 AS age
  FROM pg_stat_activity a
 WHERE a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
   AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
   AND (a.datname = current_database() AND a.backend_type <> 'autovacuum worker' OR a.backend_type = 'walsender')
 ORDER BY a.xact_start LIMIT 1
"""
SEES = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees, current_user::text AS role"
PREPARED = """
SELECT p.gid::text AS gid, p.owner::text AS role,
       extract(epoch FROM statement_timestamp() - p.prepared)::float8 AS age
  FROM pg_prepared_xacts p WHERE p.database = current_database() ORDER BY p.prepared LIMIT 1
"""
SLOTS = """
SELECT s.slot_name::text AS name, s.active, age(s.xmin) AS transactions
  FROM pg_replication_slots s WHERE s.xmin IS NOT NULL AND (NOT s.active OR age(s.xmin) > %(transactions)s)
 ORDER BY age(s.xmin) DESC LIMIT 1
"""
BEHIND = 1_000_000
"""Transactions that an active slot may lag behind: a standby's long query, not a fault."""


async def snapshots(examination: Examination) -> Findings:
    """Find the oldest session, prepared transaction and replication slot that prevent the removal of dead rows."""
    limit = examination.limits.snapshot
    oldest = 0.0
    for each in await examination.all(SESSIONS):
        oldest = each["age"]
        if oldest > limit:
            yield error(
                f"process {each['pid']} ({each['name'] or 'unnamed'}, role {each['role']}, {each['state']}) has "
                f"had a transaction open for {age(oldest)}: rows that died since then cannot be removed",
                f"Find out what it is; SELECT pg_terminate_backend({each['pid']}) ends it",
            )
    for each in await examination.all(PREPARED):
        if each["age"] > limit:
            yield error(
                f"prepared transaction {each['gid']!r} of role {each['role']} has been open for "
                f"{age(each['age'])}: it holds its locks, and rows that died since then cannot be removed",
                f"Its coordinator must finish it: COMMIT PREPARED or ROLLBACK PREPARED '{each['gid']}'",
            )
    for each in await examination.all(SLOTS, {"transactions": BEHIND}):
        what = f"{several(each['transactions'], 'transaction')} behind"
        yield warning(
            f"replication slot {each['name']} ({'active' if each['active'] else 'without a reader'}) is {what} "
            "and prevents the removal of dead rows",
            f"Bring its standby back, or SELECT pg_drop_replication_slot('{each['name']}')",
        )
    if not (role := await examination.one(SEES))["sees"]:
        yield warning(
            f"role {role['role']} does not see the transactions of other roles, so doctor cannot find an old one",
            monitor(role["role"]),
        )
    yield ok(f"the oldest transaction is {age(oldest)} old")
