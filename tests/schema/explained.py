"""Plans as values: a statement with psycopg's parameters, planned generically, executed, and what each node read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"), (int, "integer"), (float, "float8"), (UUID, "uuid"), (bytes, "bytea"),
    (datetime, "timestamptz"),
)  # fmt: skip
"""As psycopg sends them; a str goes as `unknown`, and the server infers the type."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an executed plan; rows are of all its loops together."""

    kind: str
    relation: str | None
    rows: float
    removed: float
    joined_in_vain: float
    text: str
    skips: bool
    """The whole of an index is read: what is asked for is not about its first column."""

    @property
    def read(self) -> float:
        """Rows that were looked at, whether they were wanted or not."""
        return self.rows + self.removed


def _type(value: Any) -> str:
    if isinstance(value, list):
        return (_type(value[0]) if value and not isinstance(value[0], str) else "text") + "[]"
    return next((name for kind, name in TYPES if isinstance(value, kind)), "unknown")


def explain(connection: psycopg.Connection[Any], statement: str, parameters: Mapping[str, Any]) -> list[Node]:
    """The nodes of the generic plan of a statement, as executed in the open transaction."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    text = statement
    for number, name in enumerate(names, 1):
        text = text.replace(f"%({name})s", f"${number}")
    values = [parameters[name] for name in names]
    types = f"({', '.join(map(_type, values))})" if values else ""
    run: Any = connection.execute
    run("SET LOCAL plan_cache_mode = force_generic_plan")
    for costly in ("enable_seqscan", "enable_bitmapscan", "jit"):
        run(f"SET LOCAL {costly} = off")
    run("DEALLOCATE ALL")
    run(f"PREPARE hot {types} AS {text.replace('%%', '%')}")
    arguments = sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, values))) if values else sql.SQL("")
    query = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE hot {}").format(arguments)
    plan = run(query).fetchone()[0][0]["Plan"]
    first = dict(run(FIRST).fetchall())
    return [_node(each, first.get(each.get("Index Name"))) for each in nodes(plan)]


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A plan in PostgreSQL's JSON, node by node."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


SKIPPED = frozenset({"intents_by_operation"})
"""The first column has few values: PostgreSQL 18 goes from one to the next, and earlier ones do not choose it."""
FIRST = """
SELECT c.relname, pg_get_indexdef(i.indexrelid, 1, false)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'idem'::regnamespace
"""


def _node(plan: Mapping[str, Any], first: str | None) -> Node:
    loops = plan["Actual Loops"]
    removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    kept = {k: v for k, v in plan.items() if k != "Plans"}
    return Node(
        plan["Node Type"],
        plan.get("Relation Name"),
        plan["Actual Rows"] * loops,
        removed * loops,
        plan.get("Rows Removed by Join Filter", 0) * loops,
        ", ".join(f"{k}: {v}" for k, v in kept.items() if "Cond" in k or "Filter" in k or "Name" in k or "Rows" in k),
        first is not None and plan["Index Name"] not in SKIPPED and first not in plan.get("Index Cond", first),
    )


def buffers(connection: psycopg.Connection[Any], statement: str, parameters: Mapping[str, Any]) -> int:
    """Pages that a statement touches when it is executed, planned generically."""
    explain(connection, statement, parameters)
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    arguments = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in names)
    query = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE hot ({})").format(arguments)
    found: Any = connection.execute(query).fetchone()
    plan = found[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def faults(nodes: Sequence[Node], hot: frozenset[str], batch: int, rows: int) -> list[str]:
    """What a plan of a hot statement must not do: read a hot table whole, or more rows than `rows` of it; sort or
    hash more than `rows`; compare more pairs than a batch has with itself."""
    found: list[str] = []
    for node in nodes:
        if node.kind == "Seq Scan" and node.relation in hot:
            found.append(f"Seq Scan on {node.relation}: {node.text}")
        if "Scan" in node.kind and node.relation in hot and node.read > rows:
            found.append(f"{node.kind} reads {node.read:.0f} rows of {node.relation}: {node.text}")
        if node.kind in ("Sort", "Incremental Sort", "Hash", "Materialize", "HashAggregate") and node.rows > rows:
            found.append(f"{node.kind} of {node.rows:.0f} rows: {node.text}")
        if node.skips and node.relation in hot:
            found.append(f"{node.kind} skips the first column of an index of {node.relation}: {node.text}")
        if node.joined_in_vain > batch * batch:
            found.append(f"{node.kind} compares {node.joined_in_vain:.0f} pairs in vain: {node.text}")
    return found
