"""The schema and the installation: the revision, the environment, and whether this is still the same database."""

from idem.cli.base.failures import AFTER_A_RESTORE
from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning
from idem.outbox.database.identity import IDENTITY
from idem.outbox.database.installation import other_environment
from idem.outbox.settle.doubted_rows import WAITING
from idem.outbox.values.plural import several

THERE = "SELECT to_regclass('idem.alembic_version') IS NOT NULL AS installed"
REVISION = "SELECT v.version_num AS revision FROM idem.alembic_version v"


async def schema(examination: Examination) -> Findings:
    """Check that the schema's revision is the one that this program needs."""
    from idem.migrations import runner

    head = runner.head()
    upgrade = "Run `idem db upgrade` as the owner of the schema"
    if not (await examination.one(THERE))["installed"]:
        do = f"{upgrade}, or correct IDEM_DATABASE_URL. {AFTER_A_RESTORE}"
        yield error("this database has no idem schema", do)
        return
    revision = next((each["revision"] for each in await examination.all(REVISION)), None)
    if revision == head:
        yield ok(f"the schema is at {head}")
    # Revisions are numbered.
    elif revision is not None and revision > head:
        yield error(
            f"the schema is at {revision}, which this program does not know (it needs {head})",
            "Use the version of idem that created it, or a newer one",
        )
    else:
        yield error(f"the schema is at {revision or 'nothing'}, but this program needs {head}", upgrade)


INSTALLATION = """
SELECT i.environment, i.system_identifier, i.timeline, i.database_name, i.database_oid,
       i.table_oid, i.changed_at, current_user::text AS role,
       extract(epoch FROM statement_timestamp() - i.changed_at)::float8 AS changed
  FROM idem.installation i
"""


async def environment(examination: Examination) -> Findings:
    """Check that the configuration is for this database, and that idem last wrote to this database."""
    found = next(iter(await examination.all(INSTALLATION)), None)
    if found is None:
        yield error("this database has no idem installation", "Run `idem db upgrade`")
        return
    wanted = examination.configuration.settings.environment if examination.configuration is not None else None
    wrong = other_environment(found["environment"], wanted)
    if wrong is not None:
        yield error(wrong, "No daemon with this configuration works on it. Correct IDEM_DATABASE_URL")
    yield ok(f"environment {found['environment']}")
    now = await examination.one(IDENTITY)
    what = [
        f"{words} {now[name]} instead of {found[name]}"
        for name, words in (
            ("system_identifier", "cluster"), ("timeline", "timeline"), ("database_name", "database"),
            ("database_oid", "number of the database"), ("table_oid", "number of idem's tables"),
        )
        if now[name] != found[name]
    ]  # fmt: skip
    durability = examination.configuration.settings.database.durability if examination.configuration else "single"
    if not what:
        yield ok("idem last wrote to this database", "identity")
    elif durability == "synchronous" and len(what) == 1 and now["timeline"] != found["timeline"]:
        yield warning(
            f"a fail-over took place ({what[0]}); the next daemon that connects accepts it, because nothing was lost",
            "If the new primary was not a synchronous standby, run `idem recover --lost --reason …` now",
            "identity",
        )
    else:
        yield error(
            f"this is not the database that idem last wrote to ({', '.join(what)}): the next daemon that connects "
            "makes queued rows unknown, unless a second send is harmless",
            "Before you start daemons: is it a restore, a clone or a fail-over? docs/on-call.md explains what to do "
            "(idem recover)",
            "identity",
        )


# There is no index on status_since alone, so this reads a number of the oldest unknown rows.
QUARANTINED = """
SELECT count(*)::integer AS rows FROM (
    SELECT o.status_since FROM idem.outbox o WHERE o.status = 'unknown' AND o.claim_token IS NULL
     ORDER BY o.id LIMIT 10000) u
 WHERE u.status_since BETWEEN %(changed)s - interval '1 minute' AND %(changed)s + interval '1 minute'
"""


SOON = 60.0
"""In seconds; a running sweeper doubts the listed rows within a few seconds."""


async def recovery(examination: Examination) -> Findings:
    """Rows that a change of the database made unknown and that still wait for a decision, or to be doubted."""
    found = next(iter(await examination.all(INSTALLATION)), None)
    if found is None:
        return
    left = await examination.one(WAITING)
    if left["rows"]:
        yield (error if left["oldest"] > SOON else warning)(
            f"commits were lost, and {several(left['rows'], 'row')} (the first is outbox row {left['first']}) could "
            f"not be doubted for {age(left['oldest'])}; no daemon sends or settles them until then",
            "The sweeper doubts them: is it running? A row also waits while another session locks it, its key, its "
            "intent or its dead letter: find that session in pg_stat_activity (its transaction is open) and terminate "
            "it",
        )
    if found["changed_at"] is None:
        return
    if rows := (await examination.one(QUARANTINED, {"changed": found["changed_at"]}))["rows"]:
        yield warning(
            f"the database changed at {found['changed_at']:%Y-%m-%d %H:%M:%S}Z, and {several(rows, 'row')} that "
            "became unknown are not settled yet",
            "If nothing was lost, `idem recover --lossless --reason …` restores them; if not, the reconciler asks "
            "about them (idem unknowns list)",
        )
