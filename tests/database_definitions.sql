
SELECT md5(concat_ws(',',
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_class WHERE oid > 16383),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_proc WHERE oid > 16383),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_type WHERE oid > 16383),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_constraint WHERE oid > 16383),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_trigger),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_policy),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_cast WHERE oid > 16383),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_operator WHERE oid > 16383),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_default_acl),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_event_trigger),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_extension),
    (SELECT string_agg(oid::text || xmin::text, ',' ORDER BY oid) FROM pg_namespace WHERE nspname !~ '^pg_t'),
    (SELECT string_agg(attrelid::text || attnum || xmin::text, ',' ORDER BY attrelid, attnum)
       FROM pg_attribute WHERE attrelid > 16383),
    (SELECT string_agg(indexrelid::text || indisvalid || xmin::text, ',' ORDER BY indexrelid)
       FROM pg_index WHERE indexrelid > 16383),
    (SELECT string_agg(s::text, ',') FROM pg_db_role_setting s
       JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()),
    (SELECT d.xmin::text FROM pg_database d WHERE d.datname = current_database()),
    (SELECT string_agg(i::text, ',') FROM idem.installation i),
    (SELECT string_agg(v::text, ',') FROM idem.alembic_version v),
    (SELECT string_agg(l.oid::text, ',') FROM pg_largeobject_metadata l)))
