-- Only the owner may call a function of idem or build on its types. `idem db grant` gives each role the functions of its
-- kind by name. Triggers need no grant to fire. Every revision that adds a function or a type ends with this.
DO $$
DECLARE
    each  record;
BEGIN
    -- Triggers, defaults and checks run in whatever session writes, and what they call is called in it: a name that is
    -- looked up there must not find another role's function. Bodies after RETURN were looked up when they were made.
    FOR each IN
        SELECT p.oid::regprocedure AS name FROM pg_proc p
         WHERE p.pronamespace = 'idem'::regnamespace AND p.prosqlbody IS NULL
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', each.name);
    END LOOP;
END $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA idem FROM PUBLIC;
DO $$
DECLARE
    each  record;
BEGIN
    -- Another role's column of such a type would stop the next ALTER TABLE of idem.
    FOR each IN
        SELECT t.oid::regtype AS name FROM pg_type t
         WHERE t.typnamespace = 'idem'::regnamespace AND t.typcategory <> 'A'
    LOOP
        EXECUTE format('REVOKE ALL ON TYPE %s FROM PUBLIC', each.name);
    END LOOP;
END $$;
