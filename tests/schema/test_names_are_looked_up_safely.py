"""No function of idem looks a name up by the search_path of a session, where another role could have put one."""

from typing import Any
from uuid import uuid4

import psycopg
from schema.databases import Installed

UNSAFE = """
SELECT p.oid::regprocedure::text FROM pg_proc p
 WHERE p.pronamespace = 'idem'::regnamespace
   AND NOT (p.prosqlbody IS NOT NULL AND p.proconfig IS NULL)
   AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)
 ORDER BY 1
"""


def test_every_function_has_a_parsed_body_or_a_path_of_its_own(rolled_back: psycopg.Connection[Any]) -> None:
    assert rolled_back.execute(UNSAFE).fetchall() == []
    rolled_back.execute("CREATE FUNCTION idem.by_text() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    rolled_back.execute("ALTER FUNCTION idem.decide SET search_path = public")
    rolled_back.execute("CREATE FUNCTION idem.block() RETURNS void LANGUAGE plpgsql AS 'BEGIN END'")
    found = [row[0] for row in rolled_back.execute(UNSAFE)]
    assert len(found) == 3 and {"idem.by_text()", "idem.block()"} < set(found)


# Each function of pg_catalog that a body calls, as a function of the same arguments in a schema that comes first.
SHADOWS = """
SELECT DISTINCT p.proname, a.arguments
  FROM pg_proc p
  CROSS JOIN LATERAL (VALUES (pg_get_function_identity_arguments(p.oid)),
                             (replace(pg_get_function_identity_arguments(p.oid), 'bigint', 'integer'))) a (arguments)
 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
   AND p.prorettype <> 'trigger'::regtype AND p.proargmodes IS NULL
   AND a.arguments !~ '"any"|any|internal|cstring|VARIADIC'
   AND EXISTS (SELECT FROM pg_proc f WHERE f.pronamespace = 'idem'::regnamespace
                  AND coalesce(f.prosrc, '') || coalesce(pg_get_function_sqlbody(f.oid), '')
                      ~ ('\\m' || p.proname || '\\('))
"""


def test_the_owner_who_writes_by_hand_runs_no_other_roles_function(installed: Installed) -> None:
    """Defaults, checks and triggers, in a session whose path begins with another role's schema."""
    stranger = f"idem_path_{uuid4().hex[:12]}"
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {stranger} NOSUPERUSER")
        admin.execute(f"CREATE SCHEMA {stranger} AUTHORIZATION {stranger}")
        admin.execute(f"GRANT USAGE ON SCHEMA {stranger} TO PUBLIC")
        try:
            admin.execute(f"SET ROLE {stranger}")
            made = set()
            for name, arguments in admin.execute(SHADOWS).fetchall():
                try:
                    admin.execute(
                        f'CREATE FUNCTION {stranger}."{name}"({arguments}) RETURNS text LANGUAGE plpgsql AS'
                        " $$ BEGIN RAISE EXCEPTION 'TRAP, run as %', current_user; END $$"
                    )
                    made.add((name, arguments))
                except psycopg.errors.DuplicateFunction:
                    pass
            admin.execute("RESET ROLE")
            assert ("set_bit", "bytea, integer, integer") in made and len(made) > 30
            for path in (f"{stranger}, public, pg_catalog", f'"$user", {stranger}'):
                with psycopg.connect(installed.url("owner"), autocommit=True) as owner:
                    owner.execute(f"SET search_path = {path}")
                    owner.execute("INSERT INTO idem.lane_changes (provider, account, what, paused, changed_by, reason)"
                                  " VALUES ('bank', '', 'calls', false, 'me', 'x')")  # fmt: skip
                    owner.execute('SELECT idem.uuid7(), idem.first_uuid7(now()), idem.jcs(\'{"b":1.5,"a":["x"]}\')')
                    owner.execute(
                        "SELECT idem.provider_key('\\x00', '\\x01', 't', 'o', 'k', 1, 1), idem.parse_key('k')"
                    )
                    owner.execute("SELECT idem.card_data('{\"a\": \"4242424242424242\"}'), idem.may_produce('t')")
                    owner.execute("SELECT idem.answer_problem(200, '{\"a\": \"b\"}', '')")
                    owner.execute("SELECT idem.key_lock(1, 't', 'o', 'k'), idem.needs_operator(idem.uuid7())")
        finally:
            admin.execute("RESET ROLE")
            admin.execute(f"DROP OWNED BY {stranger}")
            admin.execute(f"DROP ROLE {stranger}")
