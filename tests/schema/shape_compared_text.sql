
SELECT c.relname, a.attname, co.collname
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
  JOIN pg_collation co ON co.oid = a.attcollation
 WHERE c.relnamespace = 'idem'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped AND c.relname <> 'alembic_version'
   AND (EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND a.attnum = ANY (x.indkey::smallint[]))
     OR EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'c' AND a.attnum = ANY (k.conkey))
     OR a.attname IN ('state', 'status', 'kind', 'source', 'outcome', 'reference', 'provider', 'account', 'operation',
                      'from_state', 'to_state', 'from_status', 'to_status', 'provider_reference', 'tenant_id',
                      'idempotency_key', 'ordering_key', 'origin', 'claimed_by')
        AND c.relname NOT IN ('dead_letters', 'daemons'))
