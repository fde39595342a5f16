"""The first call of a lane whose breaker is half-open: a question where a payment would be a bad one to try it with.

A provider without replays leaves an unknown behind whenever such a try is cut off (hazard 48). So it is asked first
about something that is known to exist; the queue is tried where that cannot tell, as with refused credentials.
"""

from idem.outbox.calls import known_object
from idem.outbox.calls.breaker import BreakerState
from idem.outbox.calls.lane import Lane
from idem.outbox.database.pool import Database
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.operator import pause
from idem.outbox.values import clock


class Probe:
    """One for each lane of a worker."""

    def __init__(self, database: Database, name: LaneScope, lane: Lane) -> None:
        self._database = database
        self._name = name
        self._lane = lane
        self._asked = 0

    @property
    def is_due(self) -> bool:
        """Whether the breaker has become half-open and was not asked since."""
        breaker = self._lane.breaker
        return (
            not self._lane.provider.contract.replays
            and breaker.openings > self._asked
            and breaker.state(clock.boottime()) is BreakerState.HALF_OPEN
        )

    async def ask(self, *, lease: float) -> None:
        """Ask once, within `lease` seconds; the result goes to the breaker. Raises one of `AWAY`."""
        name, lane = self._name, self._lane
        self._asked = lane.breaker.openings
        async with self._database.connection() as connection:
            paused = await pause.read(connection, name.provider, name.account)
            if paused.calls or paused.lookups:
                return
            horizon = lane.provider.contract.lookup.horizon
            question = await known_object.newest(connection, name.provider, name.account, horizon)
        if question is not None and lane.provider.questions(question):
            await lane.ask(question, lease_ends=clock.boottime() + lease)
