"""One run: the caller's view of its lease while it makes the call, and the one report of the outcome."""

import asyncio
import contextlib
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from idem.outbox.daemon.daemon import Holds
from idem.outbox.database.pool import AWAY, REFUSED, Database, time_limited
from idem.outbox.domain import completion
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Refused, Seen, Succeeded, name
from idem.outbox.domain.terms import Terms
from idem.outbox.inline.begin import Begun
from idem.outbox.inline.renewal import renew
from idem.outbox.observe import telemetry
from idem.outbox.settle import results
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.report import Report
from idem.outbox.settle.results import ResultFate
from idem.outbox.values import clock
from idem.outbox.values.backoff import backoff
from idem.outbox.values.durations import text
from idem.outbox.values.errors import StoreUnavailable

TRY: Final = 10.0
"""Seconds for one try to write a report: a line that says nothing must not use up the time of all of them."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the runs of one process share. `report_within`: seconds for which a report is tried while the database is
    away. `holds`: the tokens that this process may still act under."""

    database: Database
    renderer: Renderer
    holds: Holds
    report_within: float


class InlineRun:
    """A call that is this caller's to make, once. Ends with `complete`, `not_executed` or `ambiguous`.

    As an async context manager it ends with `ambiguous` where the block does not report: after an exception, a
    cancellation, or because it forgot to. Belongs to one event loop.
    """

    def __init__(self, context: RunContext, begun: Begun, terms: Terms, *, every: float) -> None:
        self._context = context
        self._row = begun.row
        self._terms = terms
        self._every = every
        self._lease_ends = begun.lease_ends
        self._lost = False
        self._ending: asyncio.Task[ResultFate] | None = None
        self._renewing = asyncio.create_task(self._keep())

    @property
    def intent_id(self) -> UUID:
        return self._row.intent_id

    @property
    def provider_key(self) -> str:
        """The key to send with the call: the same at every attempt, so that the provider recognises a repetition, and
        what its look-ups and events name the call by."""
        return self._row.provider_key

    @property
    def attempt(self) -> int:
        """1 for the first run of this key; one more for each time that its client took it up again."""
        return self._row.attempt

    @property
    def remaining(self) -> float:
        """Seconds of the lease that are left, suspension of the machine included; 0 once it is lost or reported.

        Never more than the database believes. No call may begin, or go on, for longer than this.
        """
        if self._over or self.lost:
            return 0.0
        return max(0.0, self._lease_ends - clock.boottime())

    @property
    def lost(self) -> bool:
        """Whether the lease expired before the report: the row is `unknown` or has another holder. It stays so."""
        if not self._over and clock.boottime() >= self._lease_ends:
            self._lost = True
        return self._lost

    async def renew(self) -> bool:
        """Make the lease longer now; it is renewed by itself every third of it, too. Whether it is still held.

        A lost lease is never taken back. Raises one of `AWAY` while the database is away.
        """
        if self._over or self.lost:
            return False
        async with self._context.database.connection() as connection:
            ends = await renew(connection, self._row, self._terms.operation)
        if ends is None:
            self._lost = not self._over
            return False
        self._lease_ends = max(self._lease_ends, ends)
        return True

    async def complete(self, outcome: Succeeded | Refused | Pending, seen: Seen | None = None) -> ResultFate:
        """Report the provider's answer. The key is complete, or awaits the outcome that a `Pending` promises.

        Returns what became of the report: `settled`; `folded` with a proof that had come before; `already` written;
        `late_proof`, because the lease was lost, so that it was held against what is known by now. Raises
        StoreUnavailable where the database stayed away, ValueError for a `Pending` whose end no provider could report.
        """
        wanted = completion.meaning(self._terms.operation, outcome)
        if isinstance(wanted, Pending) and self._row.provider == LOCAL:
            raise ValueError(
                f"{self._terms.operation.name} has no provider that could say how a pending call ends: give the "
                'operation a provider, or set completes_when = "exists"'
            )
        return await self._end(outcome, seen or Seen())

    async def not_executed(self, why: str) -> ResultFate:
        """Report that nothing happened, for certain. The key is at rest until its client sends the request again.

        Where that is not certain (a timeout, a broken connection), `ambiguous` is the truth. Raises StoreUnavailable.
        """
        return await self._end(NotExecuted("caller"), Seen(note=why))

    async def ambiguous(self, note: str, error: str | None = None) -> ResultFate:
        """Report that it may have happened: the key is `unknown` until a look-up, an event or an operator settles it.

        `error` is the class of an exception. Raises StoreUnavailable.
        """
        return await self._end(Ambiguous(), Seen(note=note, error=error, started=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._ending is not None:
            # A report that was begun is written, though its caller may have been cancelled meanwhile.
            await asyncio.wait({self._ending})
            return
        note = "the code ended without a report" if kind is None else "the code raised an exception before its report"
        if kind is None:
            await self.ambiguous(note)
            return
        # The caller must get the exception; without this report the lease expires and says the same.
        with contextlib.suppress(StoreUnavailable):
            await self.ambiguous(note, kind.__name__)

    def stop(self) -> None:
        """Renew no longer: the lease is left to run out, unless a report comes before."""
        self._renewing.cancel()

    @property
    def _over(self) -> bool:
        ending = self._ending
        return ending is not None and ending.done() and not ending.cancelled() and ending.exception() is None

    async def _end(self, outcome: Outcome, seen: Seen) -> ResultFate:
        if self._ending is not None and not self._failed(self._ending):
            raise RuntimeError(f"the run of intent {self.intent_id} was already reported: a run ends only once")
        self._ending = asyncio.create_task(self._settle(outcome, seen))
        self._ending.add_done_callback(self._ended)
        return await asyncio.shield(self._ending)

    def _failed(self, ending: asyncio.Task[ResultFate]) -> bool:
        return ending.done() and (ending.cancelled() or ending.exception() is not None)

    def _ended(self, ending: asyncio.Task[ResultFate]) -> None:
        # The call is over in every case, and nothing of this process acts under the token any more.
        self.stop()
        self._context.holds.let_go(self._row.token)
        if not ending.cancelled():
            ending.exception()  # where the caller was cancelled, asyncio must not complain about it

    async def _settle(self, outcome: Outcome, seen: Seen) -> ResultFate:
        report = await self._context.renderer.report(self._row, outcome, seen, self._terms)
        fate = await self._written(report)
        telemetry.reported(self.intent_id, self.attempt, name(outcome), fate)
        return fate

    async def _written(self, report: Report) -> ResultFate:
        loop, context, failures = asyncio.get_running_loop(), self._context, 0
        until = loop.time() + context.report_within
        while True:
            try:
                return await time_limited(max(1.0, min(TRY, until - loop.time())), self._write(report))
            except (*AWAY, *results.WAITING) as error:
                failures += 1
                pause = backoff(failures, base=0.2, cap=2.0)
                if loop.time() + pause > until:
                    raise StoreUnavailable(
                        f"idem could not write to the database within {text(context.report_within)} that the call of "
                        f"intent {self.intent_id} ended {name(report.outcome)}. When its lease expires the intent "
                        f"becomes unknown, and it is settled by what its provider answers for {self.provider_key}, or "
                        "by an operator. Do not make the call again: the same key will show how it ended"
                    ) from error
                await asyncio.sleep(pause)

    async def _write(self, report: Report) -> ResultFate:
        async with self._context.database.connection() as connection:
            return (await results.settle(connection, [report]))[self._row.id]

    async def _keep(self) -> None:
        # By a fixed beat: one that the database does not answer must not push back the next.
        loop = asyncio.get_running_loop()
        beat = loop.time()
        while not (self._over or self.lost):
            beat += self._every
            await asyncio.sleep(max(0.0, beat - loop.time()))
            try:
                await time_limited(self._every, self.renew())
            except (*AWAY, *REFUSED):
                continue
            except Exception as error:  # a lease that is not renewed ends by itself, and the run notices it
                telemetry.broken("inline", error, f"renewing the lease of {self.intent_id}")
