"""One lane of the reconciler: claims its due rows, asks about them, and writes what that shows."""

import asyncio
from collections import Counter
from collections.abc import Mapping

from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.daemon.daemon import Holds, Life
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outcomes import name
from idem.outbox.domain.sending import StillSending
from idem.outbox.domain.terms import Terms
from idem.outbox.observe import telemetry
from idem.outbox.providers import tracing
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.values import clock
from idem.outbox.worker.account_check import AccountWatch
from idem.outbox.worker.claim import new_token
from idem.outbox.worker.sender import Sender
from idem.reconciler import due, settling, strategies
from idem.reconciler.asker import Asker
from idem.reconciler.control_question import ControlQuestion
from idem.reconciler.lookup_claim import LookupClaim
from idem.reconciler.pump import Pump
from idem.reconciler.quiet_time import QuietTimes


class ReconcilerContext:
    """What the lanes of one reconciler share. `held` counts the rows of each claim that may still be acted upon."""

    def __init__(self, database: Database, settings: ReconcilerSettings, slots: int) -> None:
        self.database = database
        self.settings = settings
        self.slots = slots
        self.renderer = Renderer()
        self.life = Life("reconciler")
        self.held = Holds()
        self.left_running = False
        """A replay that nobody can end was still running when its claim was over: its end is not on record."""
        self.life.tokens = self.held.tokens
        self.asked: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()


class LaneReconciler:
    """One lane: the same limits, breaker, last check and deadline as a worker's calls."""

    def __init__(
        self, context: ReconcilerContext, lane_name: LaneScope, lane: Lane, terms: Mapping[str, Terms]
    ) -> None:
        self._context = context
        self.name = lane_name
        self.lane = lane
        self._terms = terms
        self.account = AccountWatch(context.database, lane_name, lane, context.life.id, careful=True)
        self._sender = Sender(lane.provider, self.account)
        self._control = ControlQuestion(context.database, lane_name, lane, self._sender)
        self._asker = Asker(context.database, lane, self._control, self._sender)
        self._quiet = QuietTimes(lane_name, lane.provider.contract, context.settings.lease)
        self._pump = Pump(lane)
        self._closings = 0

    async def start(self) -> int:
        """Take what is due, as far as slots are free, and begin to ask; how many rows."""
        context = self._context
        limit = min(context.settings.batch, self._pump.room())
        if limit <= 0:
            return 0
        if not await self.account.holds():
            return 0
        token = new_token()
        context.held.hold(token)
        try:
            async with context.database.connection() as connection:
                sent_as = await self._sender.ready(connection)
                if self.lane.breaker.closings > self._closings:
                    # The provider is back: what waited for it is due, at the pace of this lane's few slots.
                    await due.hasten_lane(connection, self.name)
                    self._closings = self.lane.breaker.closings
                await self._quiet.keep(connection, context.life.leap, clock.boottime())
                rows = await due.claim_due(
                    connection,
                    self.name,
                    self.lane.provider.contract,
                    token=token,
                    holder=context.life.id,
                    beats=context.life.beats,
                    table=context.life.table,
                    lease=context.settings.lease,
                    limit=limit,
                    now=clock.boottime(),
                    replay_first=strategies.replay_first(self.lane.provider.contract),
                    sent_as=sent_as,
                    senders=self._sender.same(),
                )
        finally:
            context.held.let_go(token)
        for row in rows:
            context.held.hold(token)
            self._pump.begin(self._traced(row))
        return len(rows)

    def has_news(self) -> bool:
        """Whether a pass has something to write before a row is due: its provider is back, or the database's clock has
        jumped."""
        return self.lane.breaker.closings > self._closings or self._context.life.leap is not None

    async def pace(self) -> bool:
        """Wait for the next token of this lane's rate; False if it was not the rate that held it up."""
        seconds = self.lane.pacer.wait(clock.boottime())
        await asyncio.sleep(seconds)
        return seconds > 0

    async def start_all(self, stop: asyncio.Event) -> None:
        """Take until nothing is due, until `stop`, or until the next pass is."""
        await self._pump.run(self.start, stop, self._context.settings.interval)

    async def finish(self) -> None:
        """Wait for the questions that run; for a replay that cannot be cancelled, at most until its claim ends."""
        if not await self._pump.finish(self._context.settings.lease if self.lane.endless else None):
            self._context.left_running = True

    async def _traced(self, claim: LookupClaim) -> None:
        with tracing.of_row(claim.traceparent):
            await self._settle(claim)

    async def _settle(self, claim: LookupClaim) -> None:
        context, terms = self._context, self._terms[claim.row.call]
        try:
            claim = self._control.judged(claim)
            found = await self._asker.ask(claim)
            how, lookup = (found.how, name(found.lookup)) if found else ("lookup", "not_askable")
            why = found.seen.why if found else None
            telemetry.looked_up(self.name.provider, self.name.account, claim.row.intent_id, how, lookup, why)
            became, change = await settling.settle(context.database, context.renderer, claim, found, terms)
            context.asked[became] += 1
            if change is not None and change.status is not claim.row.status:
                context.settled[f"{how}:{lookup}"] += 1
        except StillSending:
            # Its token stays held, so that no heartbeat says that this process is done with it.
            context.held.hold(claim.row.token)
            context.left_running = True
        except Exception as error:  # one row must never stop the others: after its lease it is claimed again
            context.asked["broken"] += 1
            telemetry.lookup_failed(self.name.provider, self.name.account)
            if not isinstance(error, (*AWAY, *REFUSED)):
                telemetry.broken("reconciler", error, f"asking about {claim.row.intent_id}")
        finally:
            context.held.let_go(claim.row.token)
