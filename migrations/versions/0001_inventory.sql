-- What this schema is made of at the end of an upgrade: `idem doctor` compares it with what is there. What makes an
-- object is before this part.
DO $make$
DECLARE
    made jsonb := (
        SELECT jsonb_agg(jsonb_build_array(o.kind, o.relation, o.name) ORDER BY o.kind, o.relation, o.name) FROM (
            SELECT 'table', c.relname::text, c.relname::text FROM pg_class c
             WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')
            UNION ALL
            SELECT 'column', c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
             WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')
               AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL
            SELECT 'index', t.relname, i.relname
              FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
             WHERE i.relnamespace = 'idem'::regnamespace
            UNION ALL
            SELECT 'constraint', t.relname, n.conname FROM pg_constraint n JOIN pg_class t ON t.oid = n.conrelid
             WHERE n.connamespace = 'idem'::regnamespace AND n.contype IN ('c', 'f', 'p', 'u', 'x')
            UNION ALL
            SELECT 'trigger', t.relname, g.tgname FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
             WHERE t.relnamespace = 'idem'::regnamespace AND NOT g.tgisinternal
            UNION ALL
            SELECT DISTINCT 'function', '', p.proname FROM pg_proc p WHERE p.pronamespace = 'idem'::regnamespace
        ) AS o (kind, relation, name)
         WHERE o.name <> 'inventory' AND o.relation <> 'alembic_version'
    );
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idem.inventory() RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN %L::jsonb',
        made);
END
$make$;
