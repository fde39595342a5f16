"""The control question: before "absent" is believed, the same credentials must find something that is known to exist.

Swapped credentials, a test account or another region answer "not found" for everything, consistently (hazard 8).
"""

from __future__ import annotations

import asyncio

from idem.outbox import known
from idem.outbox.database import Database
from idem.outbox.lane import Lane
from idem.outbox.lane_names import LaneName
from idem.outbox.outcomes import Absent, CouldNotAsk, Look, Seen

GOOD_FOR = 60.0
"""Seconds for which an answered control question speaks for its lane in this process."""


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
                horizon = self._lane.provider.contract.lookup.horizon
                question = await known.newest(connection, self._name.provider, self._name.account, horizon)
            if question is None:
                return look, seen
            if not self._lane.provider.questions(question):
                # It has no look-ups: what was absent there is the answer to a cancel.
                return look, seen
            answer, why = await self._lane.ask(question, lease_ends=lease_ends)
            if isinstance(answer, Absent):
                note = "not believed: the same credentials do not find a settled payment either (another account?)"
                return CouldNotAsk(), Seen(seen.http_status, note=note, started=True)
            if isinstance(answer, CouldNotAsk):
                note = f"not believed: the control question failed ({why.note or why.error or why.http_status})"
                return CouldNotAsk(answer.retry_after), Seen(why.http_status, note=note, started=True)
            self._good_until = loop.time() + GOOD_FOR
            return look, seen
