"""Standbys: whether a fail-over keeps what `database.durability` promises (hazards 5 and 60)."""

from idem.cli.doctor.examination import Examination, RecordDict
from idem.cli.doctor.findings import CheckResult, Findings, error, monitor, ok, warning
from idem.outbox.values.plural import several

# A fail-over never promotes a base backup or a logical subscriber.
STANDBYS = """
SELECT r.application_name::text AS name, r.state::text, r.sync_state::text
  FROM pg_stat_replication r
 WHERE r.state IS DISTINCT FROM 'backup'
   AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
 ORDER BY 1
"""
COMMITS = """
SELECT current_setting('synchronous_standby_names') AS names,
       (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'synchronous_commit') AS synchronous_commit,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees, current_user::text AS role
"""
ACCEPT = (
    'Name a synchronous standby (synchronous_standby_names) and set database.durability = "synchronous"; or state '
    'that a fail-over may lose commits, with database.durability = "asynchronous"'
)


async def standbys(examination: Examination) -> Findings:
    """Compare this server's standbys with what the configuration says."""
    assert examination.configuration is not None
    durability = examination.configuration.settings.database.durability
    found = await examination.one(COMMITS)
    there = await examination.all(STANDBYS)
    names = ", ".join(sorted({each["name"] or "?" for each in there})) or "none"
    if there and not found["sees"] and durability != "asynchronous":
        yield warning(
            f"{several(len(there), 'standby', 'standbys')} may follow, but role {found['role']} cannot see their kind",
            monitor(found["role"]),
        )
    elif durability == "synchronous":
        yield _synchronous(found, there, names)
    elif durability == "single" and there and not found["names"].strip():
        yield error(
            f'database.durability is "single", but an asynchronous standby follows ({names}): if it is '
            "promoted, the last claims and accepted calls are lost, and calls repeat",
            ACCEPT,
        )
    elif durability == "asynchronous":
        yield warning(
            f'database.durability is "asynchronous" (standbys: {names}): a fail-over may lose accepted calls',
            "Keep it only if you decided so. After every fail-over run `idem recover --lost --reason …`",
        )
    else:
        yield ok(f'database.durability is "{durability}", standbys: {names}')


def _synchronous(found: RecordDict, there: list[RecordDict], names: str) -> CheckResult:
    if not found["names"].strip():
        return error(
            'database.durability is "synchronous", but synchronous_standby_names is empty: no commit waits for '
            "a standby, and idem would treat a fail-over as if nothing could be lost",
            'Name the standby in synchronous_standby_names, or set database.durability = "asynchronous"',
        )
    if found["synchronous_commit"] in ("off", "local"):
        return error(
            f"synchronous_commit is {found['synchronous_commit']}: commits do not wait for the standby that "
            'database.durability = "synchronous" relies on',
            "Set synchronous_commit = on for this role and database",
        )
    if not any(each["sync_state"] in ("sync", "quorum") and each["state"] == "streaming" for each in there):
        return error(
            f"synchronous_standby_names is {found['names']!r}, but no such standby is streaming (connected: "
            f"{names}): every commit waits for it, so accepts time out",
            "Restart the standby; its name is application_name in its primary_conninfo",
        )
    return ok(f"a synchronous standby is streaming ({names})")
