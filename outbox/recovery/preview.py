"""What a quarantine would do now: it counts without a lock and writes nothing, before a person confirms."""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import NOT_SENT_YET
from idem.outbox.recovery.quarantine import BATCH, NOTHING, Quarantined, stays_for
from idem.outbox.settle.locked_rows import FIRST_ID, read_locked

AGES = """
SELECT o.id, idem.memory_age(coalesce(o.denied_sent_at, least(o.imported_sent_at,
               (SELECT n.created_at FROM idem.intents n WHERE n.id = o.intent_id))), NULL) AS age
  FROM idem.outbox o WHERE o.id > %(after)s ORDER BY o.id LIMIT %(limit)s
"""


async def foreseen(connection: AsyncConnection[Any], catalogue: Catalogue) -> Quarantined:
    """Count the open rows that would become unknown, stay, or are already claimed, unknown or awaiting. Waits for no
    lock.
    """
    found, after = NOTHING, FIRST_ID
    while ages := await (await records(connection).execute(AGES, {"after": after, "limit": BATCH})).fetchall():
        after = ages[-1].id
        age_of = {record.id: record.age for record in ages}
        for each in await read_locked(connection, list(age_of)):
            row = each.row
            if row.status not in NOT_SENT_YET:
                found += Quarantined(open=1)
                continue
            time_left = stays_for(row, age_of[row.id], catalogue.cautious_of(row))
            found += Quarantined(unknown=1) if time_left is None else Quarantined(left=1, left_for=time_left)
    return found
