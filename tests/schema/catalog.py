"""What the catalog tells of idem's schema: two databases that were made in different ways, compared."""

from typing import Any

import psycopg

CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, co.collname,
               pg_get_expr(d.adbin, d.adrelid), a.attnum
          FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
          LEFT JOIN pg_collation co ON co.oid = a.attcollation
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'idem'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped""",
    "relations": """
        SELECT c.relname, c.relkind, c.reloptions FROM pg_class c
         WHERE c.relnamespace = 'idem'::regnamespace""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
         WHERE connamespace = 'idem'::regnamespace""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'idem'",
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, tgenabled, pg_get_triggerdef(oid) FROM pg_trigger
         WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'idem'::regnamespace)""",
    "functions": "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'idem'::regnamespace",
    "revision": "SELECT version_num FROM idem.alembic_version",
}


def dump(url: str) -> dict[str, set[tuple[Any, ...]]]:
    """The schema as the catalog tells it."""
    with psycopg.connect(url) as connection:
        return {
            name: {tuple(map(str, row)) for row in connection.execute(query)}  # type: ignore[call-overload]
            for name, query in CATALOG.items()
        }
