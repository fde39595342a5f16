"""The lanes of a worker: each claims only what it can start now, makes the calls, and reports what it saw."""

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from idem.outbox.calls.lane import Lane
from idem.outbox.calls.user_code import LAST_WORDS
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.daemon.daemon import Life
from idem.outbox.daemon.pass_times import PassTime
from idem.outbox.daemon.retry import RetryLoop
from idem.outbox.database.pool import AWAY, Database
from idem.outbox.database.pooler import server_of
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outcomes import NotExecuted, Seen, failure, name
from idem.outbox.domain.sending import StillSending
from idem.outbox.domain.terms import Terms
from idem.outbox.observe import telemetry
from idem.outbox.providers import tracing
from idem.outbox.settle import replay_window
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.report import Report
from idem.outbox.settle.settler import Settler
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.account_check import AccountWatch
from idem.outbox.worker.claim import Claim
from idem.outbox.worker.claim_gate import ClaimGate, ClaimPlan
from idem.outbox.worker.idle_poll import IdlePoll
from idem.outbox.worker.in_flight import InFlight
from idem.outbox.worker.lost_claims import recover_lost_claim
from idem.outbox.worker.probe import Probe
from idem.outbox.worker.sender import SENT_BY_OTHERS, Sender
from idem.outbox.worker.start_marks import StartMarks

OTHERS_WAIT = 60.0
"""Seconds until a row is claimed again that other credentials may have sent."""
LEFT = 2 * LAST_WORDS
"""Seconds for which a send is still waited for that was left running."""
UNREAD_WAIT = 5.0
"""Seconds until a row is claimed again whose claim this process could not read."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the lanes of one worker share."""

    database: Database
    settler: Settler
    renderer: Renderer
    life: Life
    settings: WorkerSettings
    marks: StartMarks
    idle: IdlePoll


class LaneWorker:
    """One lane of a worker: claims only what it can start now."""

    def __init__(self, context: WorkerContext, name: LaneScope, lane: Lane, terms: Mapping[str, Terms]) -> None:
        self._context = context
        self.name = name
        self.lane = lane
        self._terms = terms
        self.account = AccountWatch(context.database, name, lane, context.life.id)
        self._sender = Sender(lane.provider, self.account)
        self._probe = Probe(context.database, name, lane)
        self._tasks: dict[asyncio.Task[None], InFlight] = {}
        self._aside: set[asyncio.Task[None]] = set()
        self.left_running = False
        """A send that cannot be ended was still running when its lease expired: its end is not on record."""
        lane_of = f"{name.provider}/{name.account}"
        self._retry = RetryLoop(f"worker {lane_of}", doing=f"claiming for {lane_of}")
        settled = context.settler.subscribe(name.provider, name.account)
        self._gate = ClaimGate(lane, name, context.settings, self.account.opened, settled, context.idle.wait)
        context.idle.add(name, self._gate.tenants.position)

    async def run(self, stop: asyncio.Event, woken: asyncio.Event) -> None:
        """Claim and start calls until `stop`. `woken` is set by each hint."""
        name, poll = self.name, self._context.settings.poll
        claiming = self._context.life.passes.expect("claim", poll, name.provider, name.account)
        while not stop.is_set():
            await self._retry.attempt(partial(self._step, stop, woken, claiming), stop)

    async def _step(self, stop: asyncio.Event, woken: asyncio.Event, claiming: PassTime) -> None:
        plan = self._gate.plan(len(self._tasks), woken)
        if plan.open and self._probe.is_due:
            await self._probe.ask(lease=self._context.settings.lease)
            claiming.made()
            return
        rows = await self._claim(plan) if plan.due and await self._finds(plan) else []
        claiming.made()
        self._start(rows)
        await self._gate.wait(plan, len(rows), stop, woken)

    async def _finds(self, plan: ClaimPlan) -> bool:
        if not plan.polls:
            return True
        found = await self._context.idle.finds(self.name)
        self._retry.over()
        return found

    async def once(self) -> int:
        """Claim what is due now and make the calls; how many."""
        await self.account.once()
        room = self._gate.room(0)
        rows = await self._claim(ClaimPlan(room)) if room > 0 else []
        self._start(rows)
        await self.finish()
        return len(rows)

    async def finish(self) -> None:
        """Wait for the calls that run, and for lost claims to be found and given back.

        A send that cannot be ended is waited for until its lease expires: nothing is reported about it then, and the
        sweeper ends the claim.
        """
        while running := [*self._waited_for(), *self._aside]:
            await asyncio.wait(running, timeout=self._leave_running(), return_when=asyncio.FIRST_COMPLETED)

    def give_back(self) -> None:
        """Give back every claim whose call has not begun."""
        for task, flight in list(self._tasks.items()):
            if flight.give_back():
                note = Seen(note="given back at shutdown")
                self._context.settler.put(Report(flight.claimed.row, NotExecuted("given_back"), note, flight.terms))
                task.cancel()

    def _waited_for(self) -> list[asyncio.Task[None]]:
        # A send that was left has a moment to end; an asynchronous one that does not is left for good.
        now = clock.boottime()
        return [task for task, flight in self._tasks.items() if now < flight.waited_for]

    def _leave_running(self) -> float | None:
        """Leave the sends whose lease is over; seconds until the next one's is. None: all end by themselves."""
        if not self.lane.endless:
            return None
        now, calling = clock.boottime(), [(t, f) for t, f in self._tasks.items() if f.calling]
        for task, flight in calling:
            if flight.claimed.lease_ends <= now:
                flight.calling, self.left_running, flight.waited_for = False, True, now + LEFT
                task.cancel()
        calls = self._tasks.values()
        ends = [each.claimed.lease_ends if each.calling else each.waited_for for each in calls]
        return min((end - now for end in ends if now < end < math.inf), default=None)

    async def _claim(self, plan: ClaimPlan) -> list[Claim]:
        context = self._context
        if not await self.account.holds():
            return []
        token = claims.new_token()
        backend: int | None = None
        context.settler.held.hold(token)
        try:
            async with context.database.connection() as connection:
                sent_as = await self._sender.ready(connection)
                backend = server_of(connection)
                rows = await claims.claim(
                    connection,
                    self.name,
                    token=token,
                    holder=context.life.id,
                    beats=context.life.beats,
                    table=context.life.table,
                    lease=context.settings.lease,
                    limit=max(1, plan.limit),
                    now=clock.boottime(),
                    tenants=self._gate.tenants,
                    keep=0 if plan.spare else plan.keep,
                    spare=plan.spare,
                    sent_as=sent_as,
                    starts=self.lane.begins_at_once,
                )
        except Exception as error:
            if backend is None:
                context.settler.held.let_go(token)
            else:
                # What was sent may still commit, or has committed and could not be read.
                lost = isinstance(error, AWAY)
                self._do_aside(self._recover(token, backend, lost=lost))
            raise
        self._retry.over()
        context.settler.held.hold(token, len(rows))
        context.settler.held.let_go(token)
        if rows:
            telemetry.claimed(self.name.provider, self.name.account, len(rows))
            telemetry.rows_claimed((each.row.operation, each.row.intent_id, each.row.attempt) for each in rows)
        return rows

    def _do_aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    def _start(self, rows: Sequence[Claim]) -> None:
        for each in rows:
            flight = InFlight(each, self._terms[each.row.call], self._sender)
            task = asyncio.create_task(self._call(flight) if each.traceparent is None else self._traced(flight))
            self._tasks[task] = flight
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        flight = self._tasks.pop(task)
        self._gate.freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            telemetry.broken("worker", error, f"calling for {flight.claimed.row.intent_id}")
            self._context.settler.held.let_go(flight.claimed.row.token)

    async def _traced(self, flight: InFlight) -> None:
        with tracing.of_row(flight.claimed.traceparent):
            await self._call(flight)

    async def _mark(self, flight: InFlight) -> bool:
        needed = flight.terms.contract.deadline + self._context.settings.margin
        return await self._context.marks.mark(flight.claimed.row, needed=needed)

    async def _call(self, flight: InFlight) -> None:
        claimed, row = flight.claimed, flight.claimed.row
        if claimed.kept and not self._sender.is_now(claimed.sent_as):
            # An earlier send may count, of which this account's provider need not know.
            seen = Seen(note=SENT_BY_OTHERS)
            self._context.settler.put(Report(row, NotExecuted("given_back", OTHERS_WAIT), seen, flight.terms))
            return
        try:
            outcome, seen = await self.lane.send(
                row.id,
                claimed.request,
                lease_ends=claimed.lease_ends,
                start=flight.start,
                mark_start=partial(self._mark, flight) if row.marks_start and not row.started else None,
                send_by=replay_window.send_by(claimed.send_by, row, claimed.request, flight.terms.contract),
            )
        except StillSending:
            # Its token stays held, so that no heartbeat says that this process is done with it.
            self.left_running = True
            return
        flight.calling = False
        if flight.state == "given_back":
            return
        telemetry.called(
            row.provider, row.account, row.intent_id, row.attempt, name(outcome), seen.elapsed, failure(outcome, seen)
        )
        self._context.settler.put(await self._context.renderer.report(row, outcome, seen, flight.terms))

    async def _recover(self, token: UUID, backend: int, *, lost: bool) -> None:
        """Give back what was claimed under this token. `lost`: the answer is, so the statement may not have ended yet.

        A claim that this process could not read waits, so that it does not keep the lane from other rows.
        """
        context = self._context
        patience = context.database.timeouts.statement if lost else 0.0
        outcome = NotExecuted("given_back", None if lost else UNREAD_WAIT)
        said = "the answer to the claim statement was lost" if lost else "this process could not read its claim"
        rows = await recover_lost_claim(
            context.database, self.name.provider, self.name.account, token, backend=backend, patience=patience
        )
        for row in rows:
            context.settler.held.hold(token)
            context.settler.put(Report(row, outcome, Seen(note=f"given back: {said}"), self._terms[row.call]))
        context.settler.held.let_go(token)
