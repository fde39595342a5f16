"""The gate of a lane in one process: how many calls may begin now, and how long to wait before asking again."""

import asyncio
from collections import deque
from typing import Final

from idem.outbox.calls.breaker import Breaker
from idem.outbox.calls.transport import Transport
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.rate_limit import Pacer
from idem.outbox.values import clock

CLOSED: Final = "given back: the lane is closed"
NOT_SERVED: Final = (
    "given back: the credentials belong to another account, or the provider has not yet named their account"
)


class Slots:
    """A semaphore whose free slot is taken by a comparison. Those that wait get a slot in their order."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: deque[asyncio.Future[None]] = deque()

    def taken(self) -> bool:
        """Take a slot, if one is free and nobody waits for it."""
        if self._free <= 0 or self._waiting:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Wait for a slot."""
        if self.taken():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.free()  # it was given the slot while it was being cancelled
            raise

    def free(self) -> None:
        """Give a slot back."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class LaneGate:
    """Joins what may hold a call back: slots, breaker, rate, and the check of the account.

    The limits of the whole fleet and an operator's pause are in the database: the statement that claims reads them.
    `transport.left`: look-ups that were given up and still run; each keeps a slot. Belongs to one event loop.
    """

    def __init__(self, transport: Transport, slots: int, breaker: Breaker, pacer: Pacer) -> None:
        self.slots = slots
        self.breaker = breaker
        self.pacer = pacer
        self.served = True
        """Whether rows of this lane may be called for by this process; a call that runs is finished when it ends."""
        self._transport = transport
        self._slots = Slots(slots)
        self._calls = 0
        self._closed = False

    @property
    def free(self) -> int:
        """Slots in which a call could begin at once."""
        return max(0, self.slots - self._busy)

    def room(self, held: int = 0, keep: int = 0) -> int:
        """How many rows may be claimed now: the free slots but `keep` of them, as far as breaker and rate allow.

        `held`: rows that are claimed and not done yet. A row whose task has not run has taken neither a slot nor a
        token of the rate.
        """
        if self._closed or not self.served:
            return 0
        now, running = clock.boottime(), max(held, self._calls) + self._transport.left
        room = min(self.slots - keep - running, self.breaker.at_once - running, self.breaker.room(now))
        if (paced := self.pacer.room(now)) is not None:
            room = min(room, paced - (running - self._busy))
        return max(0, room)

    def wait(self, longest: float) -> float:
        """Seconds, at most `longest`, until breaker or rate may leave room. While no slot is free: `longest`, because
        the end of a call makes room before that."""
        if not self.free:
            return longest
        now = clock.boottime()
        return min(longest, max(0.05, self.breaker.wait(now), self.pacer.wait(now)))

    async def enter(self, latest: float, *, unserved: bool = False) -> Seen | None:
        """A slot and a token for one call. Gives why the call may not begin; None: it may, and `leave` must follow.

        `latest`: the boot time after which the call could not begin any more. `unserved`: in a lane that is not served
        as well.
        """
        self._calls += 1
        refused: Seen | None = None
        # Most calls: there is a slot, and nothing to wait for, so that no timer is needed.
        if self.pacer.rate is not None or not self._slots.taken():
            refused = await self._wait(latest)
        if refused is None:
            closed = CLOSED if self._closed else None if self.served or unserved else NOT_SERVED
            if closed is None:
                return None
            self._slots.free()
            refused = Seen(note=closed)
        self._calls -= 1
        return refused

    def leave(self) -> None:
        """The call has ended."""
        self._slots.free()
        self._calls -= 1

    async def _wait(self, latest: float) -> Seen | None:
        try:
            # A row that waits for its slot until its lease is too short is given back, not left waiting.
            async with asyncio.timeout(max(0.0, latest - clock.boottime())):
                await self._pace(latest)
                await self._slots.take()
        except (TimeoutError, asyncio.CancelledError) as error:
            return Seen(error=type(error).__name__, note="given back: no slot was free")
        return None

    async def _pace(self, latest: float) -> None:
        """Wait for the token of this call. Raises TimeoutError at once if that would be after `latest`."""
        now = clock.boottime()
        if not (wait := self.pacer.reserve(now)):
            return
        try:
            if now + wait > latest:
                raise TimeoutError
            await asyncio.sleep(wait)
        except BaseException:
            self.pacer.give_back()
            raise

    @property
    def _busy(self) -> int:
        return self._calls + self._transport.left
