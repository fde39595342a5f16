"""No statement has a join, or a question whether a row exists, that a plan may answer by reading a table to its end.

A plan test shows what the planner chose from some statistics. This one takes its choice away: with nested loops off it
joins in another way wherever the statement leaves it one. What is written `t.id = ANY (ARRAY[b.id])`, or as a subquery
that gives one row, leaves none (docs/decisions/0005).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from psycopg import sql
from schema import hot_statements
from schema.backlog import HOT
from schema.databases import Installed

TABLES = HOT | {"steps", "tenant_keys", "doubts", "order_holds", "provider_answers"}
LEFT = {"intent_list.INTENTS"}
"""A list by state or status: no index has those in its order."""
SETTINGS = {
    "enable_nestloop": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}  # fmt: skip


def _plan(connection: psycopg.Connection[Any], statement: str) -> Mapping[str, Any]:
    run: Any = connection.execute
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    for number, name in enumerate(names, 1):
        statement = statement.replace(f"%({name})s", f"${number}")
    for name, value in SETTINGS.items():
        run(f"SET LOCAL {name} = {value}")
    run(f"PREPARE joined AS {statement.replace('%%', '%')}")
    nothing = sql.SQL("({})").format(sql.SQL(", ").join([sql.NULL] * len(names))) if names else sql.SQL("")
    plan: Mapping[str, Any] = run(sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE joined {}").format(nothing)).fetchone()[0][0]
    run("DEALLOCATE joined")
    return plan["Plan"]  # type: ignore[no-any-return]


def whole(plan: Mapping[str, Any], why: str = "") -> Iterator[str]:
    """The scans of a whole index that one side of a join, or a hashed subquery, is made of."""
    kind = plan["Node Type"]
    if why and plan.get("Relation Name") in TABLES and plan.get("Index Name") and "Index Cond" not in plan:
        yield f"{plan['Relation Name']} by {plan['Index Name']}: {why}"
    if kind in ("Hash Join", "Merge Join"):
        why = plan.get("Hash Cond") or plan.get("Merge Cond") or ""
    elif kind not in ("Hash", "Sort", "Incremental Sort", "Materialize", "Unique"):
        why = ""
    for inner in plan.get("Plans", ()):
        yield from whole(inner, _hashed(plan, inner) if "Subplan Name" in inner else why)


def _hashed(plan: Mapping[str, Any], inner: Mapping[str, Any]) -> str:
    name = inner.get("Subplan Name", "")
    texts = [value for value in plan.values() if isinstance(value, str)]
    texts += [part for value in plan.values() if isinstance(value, list) for part in value if isinstance(part, str)]
    return f"hashed {name}" if name and any(f"hashed {name}" in text for text in texts) else ""


@pytest.mark.parametrize("name", sorted(hot_statements.statements(looking=True)))
def test_a_join_goes_by_an_index_or_not_at_all(pristine: Installed, name: str) -> None:
    if name in LEFT:
        pytest.skip("it is named as one that is left")
    with psycopg.connect(pristine.superuser_url) as connection:
        plan = _plan(connection, hot_statements.statements(looking=True)[name])
    assert list(whole(plan)) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE idem.intents n SET label = '' FROM unnest(%(ids)s::uuid[]) AS v (id) WHERE n.id = v.id",
        "SELECT v.id FROM unnest(%(ids)s::uuid[]) AS v (id) JOIN idem.outbox o ON o.id = v.id",
        "SELECT FROM unnest(%(ids)s::uuid[]) AS v (id) WHERE NOT EXISTS (SELECT FROM idem.outbox o WHERE o.id = v.id)",
    ],
)
def test_a_join_by_equality_is_found(pristine: Installed, statement: str) -> None:
    with psycopg.connect(pristine.superuser_url) as connection:
        assert list(whole(_plan(connection, statement))) != []
        written = re.sub(r"= v\.id", "= ANY (ARRAY[v.id])", statement)
        assert list(whole(_plan(connection, written))) == []
