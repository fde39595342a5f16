"""What may hide rows from idem or damage text (encoding, row-level security, disabled triggers), and encryption."""

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning
from idem.outbox.database import encryption, preconditions
from idem.outbox.values.plural import several

# Roles with rights on a table of idem and with neither BYPASSRLS nor the owner's exemption.
OTHERS = """
SELECT r.rolname::text AS role, count(DISTINCT c.oid)::integer AS tables
  FROM pg_catalog.pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
  JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE c.relnamespace = to_regnamespace('idem') AND c.relkind IN ('r', 'p') AND c.relrowsecurity
   AND NOT r.rolsuper AND NOT r.rolbypassrls AND r.rolname <> current_user
   AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))
 GROUP BY r.rolname ORDER BY r.rolname
"""


async def hindered(examination: Examination) -> Findings:
    """Check that this database and this role hide no row and keep every character."""
    assert examination.connection is not None
    if found := await preconditions.read(examination.connection):
        for wrong in found:
            yield error(wrong.what, wrong.do, wrong.check)
        return
    for each in await examination.all(OTHERS):
        yield error(
            f"row-level security is on for {several(each['tables'], 'table')} of idem, so role {each['role']} sees no "
            "rows there and can write none",
            f"ALTER ROLE {each['role']} BYPASSRLS, or ALTER TABLE idem.… DISABLE ROW LEVEL SECURITY for each of them",
        )
    yield ok("idem sees every row, and the encoding is UTF8")


async def encrypted(examination: Examination) -> Findings:
    """Check whether the connection to the database is encrypted."""
    assert examination.connection is not None
    host = encryption.readable(examination.connection)
    if host is not None:
        yield warning(encryption.WHAT.format(host=host), encryption.DO)
    else:
        yield ok(encryption.how(examination.connection))
