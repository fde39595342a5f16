"""Who owns the schema: an upgrade or a grant continues only if no other role could act in it.

A role that may create schemas can create `idem` before the first upgrade, with a trigger on the table of revisions.
The trigger would run as the upgrading role, and the other role would control what the upgrade creates.
"""

from typing import Final

from sqlalchemy import Connection, text

from idem.migrations.sessions import MigrationError

US: Final = "SELECT r.oid, r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user"
OWNER_OF_SCHEMA: Final = """
SELECT r.oid, r.rolsuper FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
 WHERE n.nspname = 'idem'
"""

# A superuser has the rights of every role, so of it another superuser is asked. What belongs to the first superuser of
# a cluster has no row in pg_shdepend.
OTHERS = """
WITH us AS ({us}), idem AS (
    SELECT n.oid, n.nspowner, n.nspacl FROM pg_catalog.pg_namespace n WHERE n.nspname = 'idem'
), found (what, owner) AS (
    SELECT 'the schema', idem.nspowner FROM idem
     UNION ALL
    SELECT pg_catalog.pg_describe_object(d.classid, d.objid, 0), coalesce(s.refobjid, 10)
      FROM idem JOIN pg_catalog.pg_depend d ON d.refclassid = CAST('pg_catalog.pg_namespace' AS regclass)
                                           AND d.refobjid = idem.oid
      LEFT JOIN pg_catalog.pg_shdepend s
             ON s.classid = d.classid AND s.objid = d.objid AND s.objsubid = 0 AND s.deptype = 'o'
            AND s.dbid = (SELECT b.oid FROM pg_catalog.pg_database b WHERE b.datname = current_database())
     WHERE d.classid <> CAST('pg_catalog.pg_default_acl' AS regclass)
     UNION ALL
    SELECT 'function ' || CAST(CAST(g.tgfoid AS regprocedure) AS text) || ' of trigger ' || g.tgname || ' on table '
               || c.relname, p.proowner
      FROM idem JOIN pg_catalog.pg_class c ON c.relnamespace = idem.oid
      JOIN pg_catalog.pg_trigger g ON g.tgrelid = c.oid AND NOT g.tgisinternal
      JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid
     WHERE p.pronamespace <> idem.oid
     UNION ALL
    SELECT 'the right to CREATE in the schema', a.grantee
      FROM idem CROSS JOIN LATERAL pg_catalog.aclexplode(idem.nspacl) AS a
     WHERE a.privilege_type = 'CREATE'
), others AS (
    SELECT DISTINCT found.what, coalesce(r.rolname, 'PUBLIC') AS owner
      FROM found CROSS JOIN us CROSS JOIN idem LEFT JOIN pg_catalog.pg_roles r ON r.oid = found.owner
     WHERE found.owner <> us.oid
       -- Where the schema is another's, that says it of all that belongs to the same role.
       AND (found.what = 'the schema' OR found.owner <> idem.nspowner)
       AND NOT coalesce(CASE WHEN us.rolsuper THEN r.rolsuper
                             ELSE pg_catalog.pg_has_role(us.oid, r.oid, 'USAGE') END, false)
       AND NOT ({trusted} AND coalesce(pg_catalog.pg_has_role(r.oid, us.oid, 'USAGE'), false))
)
SELECT pg_catalog.string_agg(o.what || ' (' || o.owner || ')', ', ' ORDER BY o.what <> 'the schema', o.what)
       || CASE WHEN max(o.count) > 10 THEN ' and ' || CAST(max(o.count) - 10 AS text) || ' more' ELSE '' END AS others
  FROM (SELECT what, owner, count(*) OVER () AS count FROM others ORDER BY what <> 'the schema', what LIMIT 10) AS o
"""

OF_OTHERS: Final = OTHERS.format(us=US, trusted="false")
"""What others than the current role own in the schema, or may create there; NULL where there is nothing."""
OF_ANOTHER_OWNER: Final = OTHERS.format(us=OWNER_OF_SCHEMA, trusted="true")
"""The same against the schema's owner and the roles that may act as it, for those who own nothing."""

WHO: Final = "SELECT current_user"
REFUSED: Final = (
    "the schema idem is not in the hands of this role alone: what others own there could run as this role, and would "
    "be in their hands afterwards. Nothing was changed. "
)
DO: Final = (
    "If one of them is the role that you install idem with, run this as that role. If not, find out who made it; then, "
    "as a superuser: DROP SCHEMA idem CASCADE where nothing in it is yours, else ALTER … OWNER TO your role for each, "
    "and REVOKE CREATE ON SCHEMA idem FROM who may create there"
)


def refuse_others(connection: Connection) -> None:
    """Raises MigrationError, with the objects and their owners, where the schema is not this role's alone."""
    found = connection.scalar(text(OF_OTHERS))
    if found is not None:
        who = connection.scalar(text(WHO))
        raise MigrationError(f"{REFUSED}This role is {who}. Of others: {found}. {DO}")


def block() -> str:
    """Statements of PL/pgSQL that raise what `refuse_others` does; they need a variable `others` of type text."""
    return f"""
    others := ({OF_OTHERS.strip()});
    IF others IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = '{REFUSED}This role is ' || current_user || '. Of others: ' || others || '. {DO}';
    END IF;"""


def script() -> str:
    """The same as one statement, for SQL that is run by hand."""
    return f"DO $idem_owners$ DECLARE others text; BEGIN{block()}\nEND $idem_owners$;"
