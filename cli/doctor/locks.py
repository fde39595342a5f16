"""Sessions that hold rows of idem: whatever needs such a row waits, or passes it over."""

from __future__ import annotations

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, ok, warning
from idem.cli.output import age

PATIENCE = 5.0
"""Seconds for which a transaction may hold rows of idem: idem's own end far sooner."""

# idem waits for no row for long, and so blocks nobody visibly: pg_blocking_pids() would not name these.
HOLDERS = """
SELECT a.pid, a.usename::text AS role, a.application_name::text AS name, a.state::text,
       extract(epoch FROM statement_timestamp() - a.xact_start)::float8 AS age,
       string_agg(DISTINCT c.relname::text, ', ') AS tables
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND l.granted AND l.mode <> 'AccessShareLock'
   AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
   AND a.xact_start < statement_timestamp() - %(patience)s * interval '1 s'
 GROUP BY a.pid, a.usename, a.application_name, a.state, a.xact_start ORDER BY a.xact_start LIMIT 10
"""


async def locks(examination: Examination) -> list[CheckResult]:
    """Each session whose transaction has changed or locked something of idem and is still open."""
    findings = [
        warning(
            "locks",
            f"process {each['pid']} ({each['name'] or 'unnamed'}, role {each['role']}, {each['state']}) has a "
            f"transaction open since {age(each['age'])} that may hold rows of {each['tables']}: "
            "whatever needs these rows waits",
            f"Find out what it is and end its transaction; SELECT pg_terminate_backend({each['pid']}) ends its session",
        )
        for each in await examination.all(HOLDERS, {"patience": PATIENCE})
    ]
    return findings or [ok("locks", f"no transaction holds rows of idem for more than {PATIENCE:g} s")]
