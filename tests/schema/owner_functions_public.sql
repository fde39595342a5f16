
SELECT 'function ' || p.oid::regprocedure AS what, a.privilege_type
  FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
 WHERE p.pronamespace = 'idem'::regnamespace AND a.grantee = 0
UNION ALL
SELECT 'type ' || t.oid::regtype, a.privilege_type
  FROM pg_type t CROSS JOIN LATERAL aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) AS a
 WHERE t.typnamespace = 'idem'::regnamespace AND a.grantee = 0 AND t.typcategory <> 'A'
UNION ALL
SELECT 'relation ' || c.oid::regclass, a.privilege_type
  FROM pg_class c CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind <> 'i' AND a.grantee = 0
UNION ALL
SELECT 'column ' || c.oid::regclass || '.' || t.attname, a.privilege_type
  FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN LATERAL aclexplode(t.attacl) AS a
 WHERE c.relnamespace = 'idem'::regnamespace AND a.grantee = 0
UNION ALL
SELECT 'schema ' || n.nspname, a.privilege_type
  FROM pg_namespace n CROSS JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
 WHERE n.nspname = 'idem' AND a.grantee = 0
UNION ALL
SELECT 'default of ' || d.defaclobjtype::text, a.privilege_type
  FROM pg_default_acl d CROSS JOIN LATERAL aclexplode(d.defaclacl) AS a
 WHERE d.defaclnamespace = 'idem'::regnamespace
