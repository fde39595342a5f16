"""Rights: what the current role may do, compared with what a daemon needs and what it should not be able to do."""

import re

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, granting, ok, warning
from idem.migrations import grants
from idem.outbox.values.plural import several

GRANT = re.compile(r"([A-Z]+)(?: \(([^()]*)\))?")

# Without a column: on the whole table.
MISSING = """
SELECT w.name, w.verb, w.columns
  FROM unnest(%(tables)s::text[], %(verbs)s::text[], %(columns)s::text[]) AS w (name, verb, columns)
 WHERE to_regclass('idem.' || w.name) IS NULL
    OR NOT CASE WHEN w.columns = '' THEN has_table_privilege('idem.' || w.name, w.verb)
                ELSE (SELECT bool_and(has_column_privilege('idem.' || w.name, trim(c), w.verb))
                        FROM unnest(string_to_array(w.columns, ',')) AS c) END
 ORDER BY 1, 2
"""
ROLE = """
SELECT current_user::text AS name, has_schema_privilege('idem', 'USAGE') AS usage,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) AS superuser,
       EXISTS (SELECT FROM pg_class c
                WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')
                  AND pg_has_role(current_user, c.relowner, 'USAGE')) AS owner,
       ARRAY(SELECT w.name FROM unnest(%(functions)s::text[]) AS w (name)
              WHERE NOT EXISTS (
                  SELECT FROM pg_proc p
                   WHERE p.pronamespace = 'idem'::regnamespace AND has_function_privilege(p.oid, 'EXECUTE')
                     AND CASE WHEN w.name LIKE '%%(%%' THEN p.oid = to_regprocedure('idem.' || w.name)
                              ELSE p.proname = w.name END)) AS functions
"""
# Every role that may use the schema has PUBLIC's rights, e.g. a role that only reads events or only calls idem.accept.
EVERYBODY = """
SELECT 'EXECUTE on ' || count(*) || CASE count(*) WHEN 1 THEN ' function' ELSE ' functions' END AS what
  FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
 WHERE p.pronamespace = 'idem'::regnamespace AND a.grantee = 0
HAVING count(*) > 0
UNION ALL
SELECT string_agg(DISTINCT a.privilege_type, ', ') || ' on ' || c.relname
  FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind <> 'i' AND a.grantee = 0
 GROUP BY c.relname
UNION ALL
SELECT 'CREATE on the schema' FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
 WHERE n.nspname = 'idem' AND a.grantee = 0 AND a.privilege_type = 'CREATE'
 ORDER BY 1
"""

# Of a role that was dropped, renamed, or restored from another cluster: such a row grants no right.
STALE = """
SELECT p.role, string_agg(p.tenant, ', ' ORDER BY p.tenant) AS tenants FROM idem.producers p
 WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = p.role_oid AND r.rolname = p.role)
 GROUP BY p.role, p.role_oid ORDER BY p.role LIMIT 20
"""


async def rights(examination: Examination) -> Findings:
    """Find missing rights of a daemon; a role that could disable the database's guards is a warning."""
    role = await examination.one(ROLE, {"functions": list(grants.FUNCTIONS["daemon"])})
    name = role["name"]
    if not role["usage"]:
        yield error(f"role {name} lacks USAGE on the schema idem", granting(name))
        return
    wanted = [
        (table, verb, columns.replace(" ", ""))
        for rights, tables in grants.DAEMON.items()
        for table in tables
        for verb, columns in GRANT.findall(rights)
    ]
    names, verbs, columns = (list(column) for column in zip(*wanted, strict=True))
    missing = await examination.all(MISSING, {"tables": names, "verbs": verbs, "columns": columns})
    lacks = [f"{each['verb']} on {each['name']}" for each in missing]
    if role["functions"]:
        lacks.append(f"EXECUTE on {several(len(role['functions']), 'function')}")
    if lacks:
        yield error(f"role {name} lacks what a daemon needs: {', '.join(lacks)}", granting(name))
        return
    if everybody := [each["what"] for each in await examination.all(EVERYBODY)]:
        yield error(
            "every role that may use the schema idem has rights that only idem's programs should have: "
            f"{', '.join(everybody)}",
            "As the owner of the schema: REVOKE ALL ON ALL FUNCTIONS IN SCHEMA idem FROM PUBLIC; REVOKE ALL ON ALL "
            "TABLES IN SCHEMA idem FROM PUBLIC; REVOKE CREATE ON SCHEMA idem FROM PUBLIC",
        )
    elif role["superuser"] or role["owner"]:
        why = "is a superuser" if role["superuser"] else "owns idem's tables"
        yield warning(
            f"role {name} {why}: its password allows to disable the guards that protect evidence and answers",
            "Give the daemons their own role that owns nothing (`idem db grant ROLE --as daemon`)",
        )
    yield ok(f"role {name} has what a daemon needs, and owns nothing")
    if stale := await examination.all(STALE):
        named = "; ".join(f"{each['role']} (tenants {each['tenants']})" for each in stale)
        yield warning(
            f"idem.producers names roles that no longer exist, or were created again or renamed since: {named}. These "
            "rows let no role accept",
            "For a program that still needs it, as the owner: `idem db grant ROLE --as sql --tenant …`. For the "
            "others: DELETE FROM idem.producers WHERE role = '…'",
        )
