"""The schema's objects: which are missing, invalid or disabled, compared with what the upgrade created."""

from idem.cli.doctor.examination import Examination, RecordDict
from idem.cli.doctor.findings import CheckResult, Findings, error, ok, warning
from idem.migrations.ownership import OF_ANOTHER_OWNER
from idem.outbox.values.plural import several

MISSING = """
SELECT m.kind, m.relation, m.name FROM (
    SELECT o ->> 0, o ->> 1, o ->> 2 FROM jsonb_array_elements(idem.inventory()) AS o) AS m (kind, relation, name)
 WHERE NOT CASE m.kind
    WHEN 'table' THEN EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'idem'::regnamespace
                                 AND c.relname = m.name AND c.relkind IN ('r', 'p'))
    WHEN 'column' THEN EXISTS (SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                                WHERE c.relnamespace = 'idem'::regnamespace AND c.relname = m.relation
                                  AND a.attname = m.name AND NOT a.attisdropped)
    WHEN 'index' THEN EXISTS (SELECT FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
                                JOIN pg_class t ON t.oid = x.indrelid
                               WHERE i.relnamespace = 'idem'::regnamespace AND t.relname = m.relation
                                 AND i.relname = m.name)
    WHEN 'constraint' THEN EXISTS (SELECT FROM pg_constraint n JOIN pg_class t ON t.oid = n.conrelid
                                    WHERE n.connamespace = 'idem'::regnamespace AND t.relname = m.relation
                                      AND n.conname = m.name)
    WHEN 'trigger' THEN EXISTS (SELECT FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
                                 WHERE t.relnamespace = 'idem'::regnamespace AND t.relname = m.relation
                                   AND g.tgname = m.name)
    ELSE EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'idem'::regnamespace AND p.proname = m.name) END
 ORDER BY 1, 2, 3
"""

# A failed CREATE or REINDEX CONCURRENTLY leaves an invalid index; only indexes that the upgrade created are needed.
WRONG = """
SELECT 'index' AS kind, t.relname::text AS relation, i.relname::text AS name,
       idem.inventory() @> jsonb_build_array(jsonb_build_array('index', t.relname, i.relname)) AS needed
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
 WHERE i.relnamespace = 'idem'::regnamespace AND NOT (x.indisvalid AND x.indisready AND x.indislive)
 UNION ALL
SELECT 'constraint', t.relname, n.conname, true FROM pg_constraint n JOIN pg_class t ON t.oid = n.conrelid
 WHERE n.connamespace = 'idem'::regnamespace
   AND (NOT n.convalidated OR to_jsonb(n) ->> 'conenforced' = 'false')
 UNION ALL
SELECT 'trigger', t.relname, g.tgname, true FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
 WHERE t.relnamespace = 'idem'::regnamespace AND NOT g.tgisinternal AND g.tgenabled NOT IN ('O', 'A')
 UNION ALL
SELECT 'foreign key', t.relname, n.conname, true
  FROM pg_trigger g JOIN pg_constraint n ON n.oid = g.tgconstraint JOIN pg_class t ON t.oid = n.conrelid
 WHERE n.connamespace = 'idem'::regnamespace AND g.tgisinternal AND g.tgenabled NOT IN ('O', 'A')
 GROUP BY t.relname, n.conname
 ORDER BY 1, 2, 3
"""


async def objects(examination: Examination) -> Findings:
    """Check that everything the upgrade created exists, is valid and enabled, and belongs to one role."""
    # This comes first: the doctor runs nothing that another role has put there.
    if (others := (await examination.one(OF_ANOTHER_OWNER))["others"]) is not None:
        yield error(
            f"roles other than the schema's owner own these objects in the schema idem: {others}. They can change "
            "what idem does, and what runs as its users",
            "Find out who made them. Then, as a superuser: DROP what is not idem's, ALTER … OWNER TO the schema's "
            "owner for what is, and REVOKE CREATE ON SCHEMA idem FROM who may create there",
        )
        return
    for each in await examination.all(MISSING):
        yield _missing(each)
    for each in await examination.all(WRONG):
        yield _wrong(each)
    made = (await examination.one("SELECT jsonb_array_length(idem.inventory()) AS made"))["made"]
    yield ok(f"all {several(made, 'object')} of the schema exist, valid and enabled")


def _missing(each: RecordDict) -> CheckResult:
    where = f" of idem.{each['relation']}" if each["relation"] not in ("", each["name"]) else ""
    return error(
        f"the {each['kind']} {each['name']}{where} is missing: the upgrade created it, and idem needs it",
        f"Find out who dropped it. `idem db sql | grep -A 20 {each['name']}` shows the statement that creates it, for "
        "the owner to run",
    )


def _wrong(each: RecordDict) -> CheckResult:
    kind, table, name = each["kind"], f"idem.{each['relation']}", each["name"]
    match kind:
        case "index" if each["needed"]:
            return error(
                f"the index {name} of {table} is invalid: no query uses it, and it may no longer enforce uniqueness",
                f"As the owner: REINDEX INDEX CONCURRENTLY idem.{name}",
            )
        case "index":
            return warning(
                f"the index {name} of {table} is invalid, left by a REINDEX or CREATE INDEX CONCURRENTLY that failed: "
                "every write pays for it",
                f"As the owner: DROP INDEX CONCURRENTLY idem.{name}, then repeat the command that failed",
            )
        case "constraint":
            return error(
                f"the constraint {name} of {table} is not validated or not enforced: rows may violate it",
                f"As the owner: ALTER TABLE {table} VALIDATE CONSTRAINT {name}; it names a row that breaks it",
            )
        case "foreign key":
            return error(
                f"the foreign key {name} of {table} is disabled: rows may reference nothing",
                f"As a superuser: ALTER TABLE {table} ENABLE TRIGGER ALL",
            )
    return error(
        f"the trigger {name} of {table} is disabled: it prevents changes that are not allowed",
        f"As the owner: ALTER TABLE {table} ENABLE TRIGGER {name}",
    )
