"""The time that a ledger check is about, by the database's clock."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.values.durations import text as duration
from idem.outbox.values.errors import OperatorRefused


@dataclass(frozen=True, slots=True)
class Since:
    """From when: a time, or how many seconds ago."""

    at: datetime | None = None
    ago: float | None = None


WINDOW = """
SELECT extract(epoch FROM b.at)::float8 - %(horizon)s AS since,
       extract(epoch FROM statement_timestamp())::float8 - %(horizon)s AS until,
       b.at >= statement_timestamp() AS ahead,
       b.at - make_interval(secs => %(horizon)s) < statement_timestamp() - i.evidence_retention AS forgotten,
       extract(epoch FROM i.evidence_retention)::float8 AS kept
  FROM idem.installation i
 CROSS JOIN LATERAL (SELECT coalesce(%(at)s::timestamptz,
                                     statement_timestamp() - make_interval(secs => %(ago)s)) AS at) AS b
"""


async def window(connection: AsyncConnection[Any], since: Since, horizon: float) -> tuple[float, float]:
    """What is compared, as POSIX seconds. Raises OperatorRefused for a time that is ahead or older than the ledger.

    Both ends are `horizon` (seconds) earlier, so that what was made is sure to be shown, and two checks in a row leave
    no gap.
    """
    about = {"at": since.at, "ago": since.ago or 0.0, "horizon": horizon}
    found = await (await records(connection).execute(WINDOW, about)).fetchone()
    assert found is not None
    if found.ahead:
        raise OperatorRefused("--since: that time is in the future: give an earlier one, e.g. 24h")
    if found.forgotten:
        raise OperatorRefused(
            f"--since: the ledger keeps {duration(found.kept)} (sweeper.evidence_retention), so older entries would "
            "look as if they never existed: give a later time"
        )
    return found.since, found.until
