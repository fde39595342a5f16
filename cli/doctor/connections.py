"""Connections: what all processes may open together, compared with the server's limit (IB-071)."""

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning
from idem.outbox.values.plural import several

DAEMON_POOL = 4
"""Connections of a daemon's pool (`idem.outbox.database.pool.Database`)."""
BESIDE = 1
"""Connections outside the pool: LISTEN of a worker, NOTIFY of an API process."""

# PostgreSQL 16 also has reserved_connections.
SERVER = """
SELECT current_setting('max_connections')::integer AS most,
       current_setting('superuser_reserved_connections')::integer
           + coalesce(current_setting('reserved_connections', true)::integer, 0) AS reserved,
       (SELECT CASE WHEN r.rolsuper THEN -1 ELSE r.rolconnlimit END FROM pg_roles r WHERE r.rolname = current_user)
           AS of_role,
       (SELECT d.datconnlimit FROM pg_database d WHERE d.datname = current_database()) AS of_database,
       (SELECT count(*)::integer FROM pg_stat_activity a WHERE a.backend_type = 'client backend') AS open
"""


async def connections(examination: Examination) -> Findings:
    """Compare the pools of `replicas` processes of each kind, twice that in a rolling deploy, and the open
    connections.
    """
    assert examination.configuration is not None
    found = await examination.one(SERVER)
    limits = {
        "max_connections less the reserved ones": found["most"] - found["reserved"],
        "the limit of this role": found["of_role"],
        "the limit of this database": found["of_database"],
    }
    limit, given = min(((name, n) for name, n in limits.items() if n >= 0), key=lambda each: each[1])
    api = examination.configuration.settings.api.pool + BESIDE
    one = {"worker": DAEMON_POOL + BESIDE, "sweeper": DAEMON_POOL, "reconciler": DAEMON_POOL, "api": api}
    wanted = examination.replicas * sum(one.values())
    sums = (
        f"{several(examination.replicas, 'process', 'processes')} of each kind may open {wanted} connections "
        f"({', '.join(f'{name} {examination.replicas * n}' for name, n in one.items())})"
    )
    if wanted > given:
        yield warning(
            f"{sums}, but the server allows {given} ({limit})",
            "Raise max_connections, lower api.pool, run fewer processes, or give them a pooler in session mode",
        )
    elif 2 * wanted > given:
        yield warning(
            f"{sums}; in a rolling deploy, with old and new processes at once, {2 * wanted}, but the server "
            f"allows {given} ({limit})",
            "Raise max_connections, lower api.pool, or let the deploy stop old processes first",
        )
    there = several(found["open"], "connection is", "connections are")
    if found["open"] >= found["most"] - found["reserved"]:
        yield error(
            f"{there} open, and the server accepts no more (limit {found['most']})",
            "Find their owners in pg_stat_activity; terminate idle ones; raise max_connections",
        )
    elif found["open"] > 0.8 * given:
        yield warning(
            f"{there} open, of {given}", "Find their owners in pg_stat_activity (GROUP BY usename, application_name)"
        )
    yield ok(f"{sums}, {found['open']} are open; the server allows {given}")
