"""The control question: before "absent" is believed, the same credentials must find something that is known to exist.

Swapped credentials, a test account or another region answer "not found" for everything, consistently (hazard 8).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.claim import LaneName
from idem.outbox.contract import Question
from idem.outbox.database import Database, records
from idem.outbox.lane import Lane
from idem.outbox.outcomes import Absent, CouldNotAsk, Look, Seen

GOOD_FOR = 60.0
"""Seconds for which an answered control question speaks for its lane in this process."""


@dataclass(frozen=True, slots=True)
class Control:
    """Something that is known to exist there: the newest settled payment that must be visible by now."""

    provider_key: str
    reference: str | None


NEWEST = """
SELECT r.provider_key::text AS provider_key, n.provider_reference AS reference
  FROM idem.intents n JOIN idem.requests r ON r.intent_id = n.id
 WHERE n.id = (SELECT c.id FROM idem.intents c
                WHERE c.provider = %(provider)s AND c.account = %(account)s AND c.provider_reference IS NOT NULL
                  AND c.state = 'completed' AND c.outcome = 'succeeded'
                  AND c.settled_at < statement_timestamp() - make_interval(secs => %(horizon)s)
                ORDER BY c.id DESC LIMIT 1)
 ORDER BY r.generation DESC LIMIT 1
"""


async def newest(connection: AsyncConnection[Any], lane: LaneName, horizon: float) -> Control | None:
    """The newest succeeded intent of this account that the provider must show by now; None if there is none yet."""
    cursor = records(connection)
    await cursor.execute(NEWEST, {"provider": lane.provider, "account": lane.account, "horizon": horizon})
    found = await cursor.fetchone()
    return None if found is None else Control(found.provider_key, found.reference)


class ControlQuestion:
    """One a lane. `confirm` turns an `Absent` that cannot be believed into `CouldNotAsk`."""

    def __init__(self, database: Database, name: LaneName, lane: Lane) -> None:
        self._database = database
        self._name = name
        self._lane = lane
        self._good_until = 0.0
        self._one = asyncio.Lock()

    async def confirm(self, look: Look, seen: Seen, *, lease_ends: float) -> tuple[Look, Seen]:
        """The look itself, unless it is `Absent` and the provider does not show what is known to exist either."""
        if not isinstance(look, Absent):
            return look, seen
        async with self._one:
            loop = asyncio.get_running_loop()
            if loop.time() < self._good_until:
                return look, seen
            async with self._database.connection() as connection:
                control = await newest(connection, self._name, self._lane.provider.contract.lookup.horizon)
            if control is None:
                return look, seen
            question = Question(control.provider_key, control.reference, awaiting=False)
            answer, why = await self._lane.ask(question, lease_ends=lease_ends)
            if isinstance(answer, Absent):
                note = "not believed: the same credentials do not find a settled payment either (another account?)"
                return CouldNotAsk(), Seen(seen.http_status, note=note, started=True)
            if isinstance(answer, CouldNotAsk):
                note = f"not believed: the control question failed ({why.note or why.error or why.http_status})"
                return CouldNotAsk(answer.retry_after), Seen(why.http_status, note=note, started=True)
            self._good_until = loop.time() + GOOD_FOR
            return look, seen
