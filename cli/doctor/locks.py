"""Sessions that lock rows of idem: other sessions wait for such a row, or skip it."""

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, ok, warning

PATIENCE = 5.0
"""Seconds for which a transaction may lock rows of idem; idem's own transactions end far sooner."""

# idem never waits long for a row, so pg_blocking_pids() would not name these sessions.
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


async def locks(examination: Examination) -> Findings:
    """Each session with an open transaction that has changed or locked rows of idem."""
    for each in await examination.all(HOLDERS, {"patience": PATIENCE}):
        yield warning(
            f"process {each['pid']} ({each['name'] or 'unnamed'}, role {each['role']}, {each['state']}) has a "
            f"transaction open since {age(each['age'])} that may lock rows of {each['tables']}; everything that needs "
            "these rows waits",
            f"Find out what it is and end its transaction; SELECT pg_terminate_backend({each['pid']}) ends its session",
        )
    yield ok(f"no transaction has locked rows of idem for more than {PATIENCE:g} s")
