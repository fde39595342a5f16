"""Finds settings of a database or a role with which idem cannot work, before it does anything.

Row-level security hides rows, and a queue whose rows are hidden looks empty. A session in the role of a replica runs
no trigger, and the triggers are idem's guards. In another encoding than UTF8 a provider's answer may not be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from idem.outbox.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from psycopg import AsyncConnection

ENCODING: Final = "UTF8"


@dataclass(frozen=True, slots=True)
class SessionAccess:
    """How this session stands to the database. `hidden` are tables of idem whose rows a policy may hide from it;
    `hidden_from_owner` are those that hide them from their owner, in whose name functions of idem run."""

    role: str
    owner: str | None
    encoding: str
    replication_role: str
    hidden: list[str]
    hidden_from_owner: list[str]


@dataclass(frozen=True, slots=True)
class Hindrance:
    """What is wrong, in one sentence without its end, and what to do now."""

    check: str
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}. {self.do}"


HINDRANCES: Final = """
SELECT current_user::text AS role, pg_get_userbyid(n.nspowner)::text AS owner,
       current_setting('server_encoding') AS encoding,
       current_setting('session_replication_role') AS replication_role,
       ARRAY(SELECT c.relname::text FROM pg_catalog.pg_class c
              WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND row_security_active(c.oid)
              ORDER BY 1) AS hidden,
       ARRAY(SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
              WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND c.relrowsecurity AND c.relforcerowsecurity
                AND NOT r.rolsuper AND NOT r.rolbypassrls
              ORDER BY 1) AS hidden_from_owner
  FROM (SELECT 1) AS always (one) LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'idem'
"""


def hindrances(found: SessionAccess) -> list[Hindrance]:
    """Everything that keeps idem from working in such a session."""
    wrong: list[Hindrance] = []
    if found.encoding != ENCODING:
        wrong.append(
            Hindrance(
                "encoding",
                f"the encoding of this database is {found.encoding}, but idem needs {ENCODING}: it could not store "
                "what clients and providers write",
                f"Create a database with ENCODING '{ENCODING}' TEMPLATE template0, and move to it by pg_dump",
            )
        )
    if found.replication_role == "replica":
        wrong.append(
            Hindrance(
                "triggers",
                f"session_replication_role is replica for role {found.role}: no trigger runs, and idem protects "
                "answers and evidence with triggers",
                f"ALTER ROLE {found.role} RESET session_replication_role (also for the database or the server)",
            )
        )
    if found.hidden:
        wrong.append(_hidden(found.role, found.hidden))
    if found.owner is not None and found.hidden_from_owner and (found.role != found.owner or not found.hidden):
        wrong.append(_hidden(found.owner, found.hidden_from_owner))
    return wrong


def _hidden(role: str, tables: list[str]) -> Hindrance:
    named = ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")
    return Hindrance(
        "row_security",
        f"row-level security hides rows of idem's tables from role {role} ({named}), so existing work and answers "
        "would look absent",
        f"ALTER ROLE {role} BYPASSRLS, or ALTER TABLE idem.… DISABLE ROW LEVEL SECURITY for each of them",
    )


async def read(connection: AsyncConnection[Any]) -> list[Hindrance]:
    """The problems of this session; [] in a database that has no schema of idem yet and is in order."""
    from psycopg.rows import tuple_row

    found = await (await connection.cursor(row_factory=tuple_row).execute(HINDRANCES)).fetchone()
    assert found is not None
    return hindrances(SessionAccess(*found))


async def refuse(connection: AsyncConnection[Any]) -> None:
    """Raises StoreUnavailable where something stands in the way: a query that finds nothing here proves nothing."""
    if wrong := await read(connection):
        raise StoreUnavailable("; ".join(map(str, wrong)))
