"""Finds intents by an id, a key, a reference, a label or a time. Each look-up reads an index.

Ids are UUIDv7, so a time is a range of ids. `created_at` is the start of the transaction that made the id: at most
`SLACK` earlier.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.operator.id_prefixes import Prefix

LIMIT: Final = 50
"""Most intents that one look-up finds."""
SCANNED: Final = 10_000
"""Most rows that one look-up reads, because a label may belong to very many intents."""
SLACK: Final = timedelta(hours=1)
FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = datetime(9999, 1, 1, tzinfo=UTC)
NEWEST: Final = UUID(int=2**128 - 1)


def first_id(moment: datetime) -> UUID:
    """The first id of this time."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)


def span(since: datetime | None, until: datetime | None) -> tuple[UUID, UUID]:
    """The range of ids that were made from `since` on and before `until`: the first of it, and the first after it."""
    low = UUID(int=0) if since is None or since < FIRST else first_id(min(since, LAST))
    return low, NEWEST if until is None or until > LAST else first_id(until)


def bounds(since: datetime | None, until: datetime | None) -> dict[str, Any]:
    """The parameters of a range of time: of ids, with some slack, and of times, exactly."""
    low = None if since is None or since < FIRST + SLACK else since - SLACK
    high = None if until is None or until > LAST - SLACK else until + SLACK
    ids = span(low, high)
    return {"since": since, "until": until, "low": ids[0], "high": ids[1]}


BY_ID = "SELECT n.id FROM idem.intents n WHERE n.id BETWEEN %(low)s AND %(high)s ORDER BY n.id DESC LIMIT %(limit)s"
BY_DEAD_LETTER = """
WITH looked AS MATERIALIZED (
    SELECT d.id, d.intent_id FROM idem.dead_letters d
     WHERE d.id BETWEEN %(low)s AND %(high)s ORDER BY d.id DESC LIMIT %(scanned)s
)
SELECT l.intent_id AS id FROM looked l WHERE l.intent_id IS NOT NULL ORDER BY l.id DESC LIMIT %(limit)s
"""
BY_PROVIDER_KEY = """
SELECT r.intent_id AS id FROM idem.requests r WHERE r.provider_key = %(key)s LIMIT %(limit)s
"""
# A range over the index's first column, in the index's order, so that no statistics make the planner scan all intents
# from the newest on, as it would for the newest 50 of a text that it takes for a frequent one.
BY_REFERENCE = """
WITH looked AS MATERIALIZED (
    SELECT n.id FROM idem.intents n
     WHERE n.provider_reference >= %(text)s AND n.provider_reference <= %(text)s
     ORDER BY n.provider_reference, n.tenant_id, n.id LIMIT %(scanned)s
)
SELECT l.id FROM looked l
 UNION
(SELECT s.intent_id FROM idem.steps s WHERE s.provider_reference = %(text)s LIMIT %(scanned)s)
 UNION
(SELECT o.intent_id FROM idem.outbox o
  WHERE o.step_name IS NOT NULL AND o.provider_reference = %(text)s LIMIT %(scanned)s)
 ORDER BY id DESC LIMIT %(limit)s
"""
BY_LABEL = """
WITH looked AS MATERIALIZED (
    SELECT n.id, n.label FROM idem.intents n
     WHERE left(n.label, 200) >= left(%(text)s::text, 200) AND left(n.label, 200) <= left(%(text)s::text, 200)
       AND n.label IS NOT NULL
     ORDER BY left(n.label, 200), n.tenant_id, n.id LIMIT %(scanned)s
)
SELECT l.id FROM looked l WHERE l.label = %(text)s ORDER BY l.id DESC LIMIT %(limit)s
"""
BY_CLIENT_KEY = """
SELECT n.id FROM idem.intents n
 WHERE n.idempotency_key >= %(text)s AND n.idempotency_key <= %(text)s
 ORDER BY n.idempotency_key DESC, n.id DESC LIMIT %(limit)s
"""
BY_TIME = """
SELECT n.id FROM idem.intents n WHERE n.id >= %(low)s AND n.id < %(high)s ORDER BY n.id DESC LIMIT %(limit)s
"""


def ways(text: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The possible meanings of this text: its kind, the statement that looks it up, and the parameters."""
    text = text.strip()
    try:
        prefix = Prefix.parse(text)
    except ValueError:
        pass
    else:
        yield "id", BY_ID, {"low": prefix.low, "high": prefix.high}
        yield "dead letter", BY_DEAD_LETTER, {"low": prefix.low, "high": prefix.high}
        if prefix.whole is not None:
            yield "provider key", BY_PROVIDER_KEY, {"key": prefix.whole}
    yield "reference", BY_REFERENCE, {"text": text}
    yield "label", BY_LABEL, {"text": text}
    yield "key", BY_CLIENT_KEY, {"text": text}
    if (time := _time(text)) is not None:
        low, high = span(*time)
        yield "time", BY_TIME, {"low": low, "high": high}


def _time(text: str) -> tuple[datetime, datetime] | None:
    """The day or the minute that a text names, in UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not len(text) >= 10:
        return None
    since = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    try:
        return since, since + (timedelta(days=1) if len(text) == 10 else timedelta(minutes=1))
    except OverflowError:
        return None


FOUND = """
SELECT n.id, n.tenant_id, n.operation, n.idempotency_key, n.state, n.outcome, o.status, o.step_name AS step,
       coalesce(n.provider, o.provider) AS provider, coalesce(n.account, o.account) AS account,
       n.provider_reference, n.label, n.created_at,
       extract(epoch FROM statement_timestamp() - n.created_at)::float8 AS age,
       ARRAY(SELECT d.id FROM idem.dead_letters d
              WHERE d.intent_id = n.id AND d.resolved_at IS NULL ORDER BY d.id) AS dead_letters
  FROM unnest(%(ids)s::uuid[]) AS f (id)
 CROSS JOIN LATERAL (SELECT i.* FROM idem.intents i WHERE i.id = f.id LIMIT 1) AS n
  LEFT JOIN idem.outbox o ON o.intent_id = ANY (ARRAY[n.id])
 ORDER BY n.id DESC
"""


async def find(connection: AsyncConnection[Any], text: str, *, limit: int = LIMIT) -> list[dict[str, Any]]:
    """Intents that match this text, newest first; `found_by` names the kinds that match. Empty if there is none."""
    by: dict[UUID, list[str]] = {}
    for word, statement, parameters in ways(text):
        rows = await (await connection.execute(statement, parameters | {"scanned": SCANNED, "limit": limit})).fetchall()
        for (intent,) in rows:
            if word not in by.setdefault(intent, []):
                by[intent].append(word)
    if not by:
        return []
    cursor = connection.cursor(row_factory=dict_row)
    found = await (await cursor.execute(FOUND, {"ids": list(by)})).fetchall()
    return [row | {"found_by": by[row["id"]]} for row in found]
