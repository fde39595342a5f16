"""What the next claim of a worker's lane may take, and what the lane waits for between two claims."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.daemon.retry import wait, wait_for_any
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.values import clock
from idem.outbox.worker.fairness import TenantRound

AFTER_HINT = 0.03
"""Seconds after a hint until one more claim: whoever sends hints may send them just before the commit can be seen."""

GATHER = 0.003
"""Seconds for which a claim waits after a call has ended in a full lane, or after one that has found something, so that
it is for some more."""


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """One claim: up to `limit` rows, with `keep` calls of the fleet left free.

    `spare`: only rows of tenants that hold no call may be claimed now, for the call that was kept free. `open`: whether
    the lane has room at all. `due`: whether the claim is worth its statement. `polls`: nothing has happened since the
    last claim has found nothing, so that the worker's poll for all lanes says first whether there is anything.
    """

    limit: int
    keep: int = 0
    spare: bool = False
    open: bool = True
    due: bool = True
    polls: bool = False


class ClaimGate:
    """One for each lane of a worker. It asks the lane, and remembers what the last claim has shown of fleet and queue.

    `opened`: set while the account check lets the lane serve. `settled`: set when a result of this lane was settled.
    `next_poll`: seconds until the worker polls for all its lanes.
    """

    def __init__(
        self, lane: Lane, name: LaneScope, settings: WorkerSettings, opened: asyncio.Event, settled: asyncio.Event,
        next_poll: Callable[[], float],
    ) -> None:  # fmt: skip
        self._lane = lane
        self._settings = settings
        self._opened = opened
        self._settled = settled
        self._calls = min(lane.slots, name.concurrency or lane.slots)
        self.tenants = TenantRound()
        self.freed = asyncio.Event()
        """Set when a call has ended."""
        self._next_poll = next_poll
        self._hinted = False
        self._idle = False
        self._fleet_full = False
        self._claimed_at = 0.0

    def room(self, held: int, keep: int = 0) -> int:
        """How many rows may be claimed at once. `held`: rows that were claimed and are not done yet."""
        return min(self._settings.batch, self._lane.room(held, keep))

    def plan(self, held: int, woken: asyncio.Event) -> ClaimPlan:
        """The next claim, by what is free now. `woken`: set by each hint; one that comes later is for the claim after
        this one."""
        self._hinted = woken.is_set()
        woken.clear()
        self._fleet_full = self._fleet_full and not self._settled.is_set()
        self._settled.clear()
        self.freed.clear()
        if self.room(held) <= 0:
            return ClaimPlan(0, open=False, due=False)
        now = clock.boottime()
        keep = self.tenants.keep(now, self._calls)
        limit = 0 if self._fleet_full else self.room(held, keep)
        if limit > 0:
            self._claimed_at = now
            return ClaimPlan(limit, keep, polls=self._idle and not self._hinted)
        return ClaimPlan(0, keep, spare=keep > 0, due=keep > 0 and self.tenants.others)

    async def wait(self, plan: ClaimPlan, claimed: int, stop: asyncio.Event, woken: asyncio.Event) -> None:
        """Wait until the next claim is worth its statement: for a free slot, a hint, a settled result or the poll.

        `claimed`: how many rows this plan has claimed. `woken`: set by each hint.
        """
        poll, self._idle = self._settings.poll, False
        if not self._lane.served:
            await wait_for_any(stop, self._opened, seconds=poll)
            return
        if not plan.open:
            freed = await wait_for_any(stop, self.freed, seconds=self._lane.wait(poll))
            if freed and self.tenants.queued and self._lane.free < self._lane.slots // 2:
                # Calls end one after the other: a claim for each would cost more than it brings.
                await asyncio.sleep(GATHER)
            return
        if claimed >= max(1, plan.limit):
            return
        if plan.limit > 0 and self.tenants.queued:
            # Rows are queued, and the claim took fewer than this lane has room for: the fleet is full.
            self._fleet_full = True
            if plan.keep and self.tenants.others:
                return
        # At once after a hint, once more a moment later, then fall back to polling.
        events = [stop, woken, *[self.freed] * plan.spare, *[self._settled] * self._fleet_full]
        idle = not (claimed or self._hinted or plan.spare or self._fleet_full or self.tenants.queued)
        passed = not await wait_for_any(
            *events, seconds=AFTER_HINT if self._hinted else self._next_poll() if idle else poll
        )
        self._idle = idle and passed
        hinted = self._hinted or woken.is_set()
        since = clock.boottime() - self._claimed_at
        if claimed and since < GATHER:
            # More may come where something was found: the claims are for some of it, not for each row.
            await wait(stop, GATHER - since)
        # Hints may come without a gap: a call that another process has freed, or a lane that was resumed, is found
        # after the same time.
        self._fleet_full = self._fleet_full and not passed and since < (AFTER_HINT if hinted else poll)
        self.tenants.others = passed or hinted or (self.tenants.denied and self._settled.is_set())
