-- Only the owner may call a function of idem or build on its types. `idem db grant` gives each role the functions of its
-- kind by name. Triggers need no grant to fire. Every revision that adds a function or a type ends with this.
--
-- Triggers, defaults and checks run in whatever session writes, and what they call is called in it: a name that is looked
-- up there must not find another role's function. So each function has a search_path of its own. Bodies after RETURN were
-- looked up when they were made.
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
