
SELECT 'schema', 'idem', a.privilege_type, '' FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
 WHERE n.nspname = 'idem' AND a.grantee = %(role)s::text::regrole
 UNION ALL
SELECT 'table', c.relname, a.privilege_type, '' FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
 WHERE c.relnamespace = 'idem'::regnamespace AND a.grantee = %(role)s::text::regrole
 UNION ALL
SELECT 'column', c.relname, a.privilege_type, t.attname
  FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN LATERAL aclexplode(t.attacl) AS a
 WHERE c.relnamespace = 'idem'::regnamespace AND a.grantee = %(role)s::text::regrole
 UNION ALL
SELECT 'function', p.oid::regprocedure::text, a.privilege_type, ''
  FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
 WHERE p.pronamespace = 'idem'::regnamespace AND a.grantee = %(role)s::text::regrole
 UNION ALL
SELECT 'type', t.typname, a.privilege_type, '' FROM pg_type t CROSS JOIN LATERAL aclexplode(t.typacl) AS a
 WHERE t.typnamespace = 'idem'::regnamespace AND a.grantee = %(role)s::text::regrole
 UNION ALL
SELECT 'tenant', p.tenant, '', '' FROM idem.producers p WHERE p.role = %(role)s::text
