"""After the database's clock has jumped forward, gives back the quiet times that the jump cut short.

A stalled request may still act, whatever the clock says: an absence that is believed too early is a second payment.
Calls that are sent after the jump use the new clock, so their quiet times are right.
"""

from datetime import timedelta
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.daemon.daemon import HEARTBEAT
from idem.outbox.daemon.database_clock import Leap
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.lane_scopes import LaneScope

UNSEEN: Final = 2 * HEARTBEAT
"""Seconds before the jump was noticed in which it may have happened."""

# What another session holds is left out, and comes before the next claim: no verdict is written while it is held.
RAISE_QUIET = """
UPDATE idem.outbox SET quiet_after = %(until)s
 WHERE id = ANY (ARRAY(
       SELECT o.id FROM idem.outbox o
        WHERE o.status IN ('unknown', 'awaiting') AND o.provider = %(provider)s AND o.account = %(account)s
          AND o.quiet_after > %(over)s AND o.quiet_after < %(until)s
        ORDER BY o.id
          FOR NO KEY UPDATE SKIP LOCKED))
"""


class QuietTimes:
    """Of one lane. `lease`: seconds for which a claim is held at most, beyond which nothing is sent."""

    def __init__(self, lane: LaneScope, contract: Contract, lease: float) -> None:
        self._lane = lane
        self._longest = contract.flight_limit + contract.pause_allowance + lease

    async def keep(self, connection: AsyncConnection[Any], leap: Leap | None, now: float) -> int:
        """Give back what the last jump cut off, until nothing from before it can act any more; how many rows.

        A row whose quiet time was over before the jump stays as it is. `now` is on the boot clock.
        """
        if leap is None or now > leap.noticed + self._longest:
            return 0
        parameters = {
            "provider": self._lane.provider,
            "account": self._lane.account,
            "over": leap.at - timedelta(seconds=leap.seconds + UNSEEN),
            "until": leap.at + timedelta(seconds=self._longest),
        }
        return (await connection.execute(RAISE_QUIET, parameters)).rowcount
