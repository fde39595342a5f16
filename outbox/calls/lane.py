"""One lane: all calls to one account of one provider, so that a slow or broken lane delays no other."""

import math
import ssl
from collections.abc import AsyncGenerator, Hashable
from functools import partial

from idem.outbox.calls import lookup_pages
from idem.outbox.calls.breaker import Breaker
from idem.outbox.calls.call_end import CallEnd, MarkStart, NotSent, Start, is_trouble
from idem.outbox.calls.lane_gate import LaneGate
from idem.outbox.calls.lookup_pages import Cancelled, LookupResult, observed
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.calls.transport import transport
from idem.outbox.domain.contract import Account, FrozenRequest, Response
from idem.outbox.domain.outcomes import Ambiguous, CouldNotAsk, LookupOutcome, NotExecuted, Outcome, Seen
from idem.outbox.domain.provider import Item, Provider, Question
from idem.outbox.domain.rate_limit import Pacer
from idem.outbox.domain.redaction import quoted
from idem.outbox.domain.sending import StillSending
from idem.outbox.providers import tracing
from idem.outbox.values import clock, threads
from idem.outbox.values.errors import ConfigError


class Lane(LaneGate):
    """The calls of one (provider, account) in this process, behind its gate.

    Belongs to one event loop. `margin` (seconds) is kept free between a call's deadline and its lease. Raises
    ConfigError if the account's origin or credentials cannot be used.
    """

    def __init__(
        self,
        provider: Provider,
        account: Account,
        *,
        slots: int,
        margin: float,
        resolver: Resolver | None = None,
        breaker: Breaker | None = None,
        pacer: Pacer | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.provider = provider
        self.account = account
        self.margin = margin
        super().__init__(
            transport(provider, account, slots=slots, margin=margin, resolver=resolver, tls=tls),
            slots,
            breaker or Breaker(),
            pacer or Pacer(provider.contract.limits.rate),
        )

    @property
    def endless(self) -> bool:
        """Whether a write may outlive its deadline and lease, because it cannot be ended: `send` then waits for it."""
        return self._transport.endless

    @property
    def begins_at_once(self) -> bool:
        """Whether a call begins as soon as it is claimed: it waits for no rate, and makes no connection that could fail
        before its first byte."""
        return self._transport.endless and self.pacer.rate is None

    async def send(
        self,
        row_id: Hashable,
        request: FrozenRequest,
        *,
        lease_ends: float,
        start: Start,
        mark_start: MarkStart | None = None,
        send_by: float = math.inf,
    ) -> tuple[Outcome, Seen]:
        """Make a write, first send or replay, and return its outcome.

        `send_by`, on the boot clock like `lease_ends`: the provider is sure to remember an earlier send until then, so
        no byte leaves later, however long this process was stopped since the statement that allowed it.

        Raises no Exception and no CancelledError: the caller must bring the outcome to the row in every case, and asks
        its task whether it was cancelled. `given_back` means that the provider was not called and is not the reason.
        The one exception is StillSending, where the lane is `endless` and the task was cancelled: it reports nothing.
        """
        now = clock.boottime()
        if not self.breaker.may_call(row_id, now):
            # With a wait, so that the row is not claimed again at once, and again.
            return NotExecuted("given_back", self.breaker.wait(now) or 1.0), Seen(
                note="given back: the breaker is open"
            )
        outcome: Outcome = NotExecuted("given_back")
        trouble = True
        try:
            # The last check before the first byte keeps deadline and margin free before the end of a lease.
            ends = min(lease_ends, send_by + self.provider.contract.deadline + self.margin)
            ended = await self._call(request, lease_ends=ends, start=start, mark_start=mark_start)
            if isinstance(ended, Response):
                elapsed = clock.boottime() - now
                if len(ended.body) <= threads.LIGHT:
                    outcome, seen = self._classified(ended)
                else:
                    outcome, seen = await threads.read_to_the_end(ended.body, partial(self._classified, ended))
                seen = quoted(observed(seen, ended, elapsed), ended, outcome, self.account)
            else:
                outcome, seen = ended.outcome, ended.seen
            trouble = is_trouble(ended)
        except StillSending:
            raise
        except Exception as error:
            # Only ConfigError is known to be raised here; another exception has proven nothing.
            outcome, seen = _failed_write(error), _failure(error, "the call failed here", started=True)
        finally:
            self.breaker.record(row_id, outcome, clock.boottime(), trouble=trouble)
        return outcome, seen

    async def ask(self, question: Question, *, lease_ends: float) -> tuple[LookupOutcome, Seen]:
        """Ask the provider, best question first, until one gets an answer. Like `send` it does not raise."""
        key, now = question.provider_key, clock.boottime()
        if not self.breaker.may_call(key, now):
            return CouldNotAsk(self.breaker.wait(now) or None), Seen(note="the breaker is open")
        result = LookupResult(CouldNotAsk(), Seen(), None)
        try:
            result = await lookup_pages.ask(self.provider, question, self._asking(lease_ends))
        except Exception as error:
            result = LookupResult(CouldNotAsk(), _failure(error, "the question failed here"), None)
        finally:
            self._record_lookup(key, result.reached)
        return result.lookup, result.seen

    async def cancel(self, question: Question, *, lease_ends: float) -> tuple[LookupOutcome, Seen]:
        """Ask the provider to void everything that was sent under the key of this call. Like `send` it does not raise.

        `Absent`: nothing stands under it; whether nothing will, the contract says (`CancelRule.blocks_late_requests`).
        """
        request = self.provider.cancel(question)
        if request is None:
            return CouldNotAsk(), Seen(note="this provider cannot cancel by key")
        key, now = question.provider_key, clock.boottime()
        if not self.breaker.may_call(key, now):
            return CouldNotAsk(self.breaker.wait(now) or None), Seen(note="the breaker is open")
        ended = Cancelled(CouldNotAsk(), Seen(), NotExecuted("given_back"))
        try:
            ended = await lookup_pages.cancel(self.provider, question, request, self._asking(lease_ends))
        except Exception as error:
            seen = _failure(error, "the cancel failed here", started=True)
            ended = Cancelled(CouldNotAsk(), seen, _failed_write(error))
        finally:
            self.breaker.record(key, ended.outcome, clock.boottime(), trouble=ended.trouble)
        return ended.lookup, ended.seen

    async def list(self, since: float, until: float, *, patience: float = 60.0) -> AsyncGenerator[Item, None]:
        """Everything that the provider made between two times (POSIX seconds), in the order of its own list.

        `patience`: seconds that each page may wait for a slot. Raises ListFailed where the list was not read to its
        end, so that an object that was not shown must not count as absent; ConfigError; CancelledError.
        """

        async def call(request: FrozenRequest) -> CallEnd:
            now = clock.boottime()
            if not self.breaker.may_call(since, now):
                return NotSent(Seen(note="the breaker is open"), given_back=True)
            reached: bool | None = None
            try:
                needed = patience + self.margin + self.provider.contract.deadline
                ended = await self._asking(now + needed)(request)
                reached = ended.reached
                return ended
            finally:
                self._record_lookup(since, None if lookup_pages.task_cancelled() else reached)

        async for page in lookup_pages.listing(self.provider, since, until, call):
            for item in page.items:
                yield item

    async def whose(self, *, patience: float = 5.0) -> tuple[str | None, Seen]:
        """What names the account of these credentials, asked also where the lane is not served; None: it could not be
        found out. `patience`: seconds to wait for a slot. Like `send` it does not raise.
        """
        key, now, reached = ("account",), clock.boottime(), None
        if not self.breaker.may_call(key, now):
            return None, Seen(note="the breaker is open")
        lease_ends = now + patience + self.margin + self.provider.contract.deadline
        try:
            result = await lookup_pages.whose(self.provider, self._asking(lease_ends, unserved=True))
            reached = result.reached
            return result.account, result.seen
        except Exception as error:
            return None, _failure(error, "the question failed here")
        finally:
            self._record_lookup(key, None if lookup_pages.task_cancelled() else reached)

    async def close(self) -> None:
        """Close what is idle; calls that run are finished, and their clients closed by them."""
        self._closed = True
        await self._transport.close()

    def _asking(self, lease_ends: float, *, unserved: bool = False) -> lookup_pages.Ask:
        return partial(self._call, lease_ends=lease_ends, start=lambda: True, unserved=unserved)

    def _record_lookup(self, key: Hashable, reached: bool | None) -> None:
        if reached is None:
            self.breaker.record(key, NotExecuted("given_back"), clock.boottime())
        else:
            self.breaker.record_lookup(key, clock.boottime(), reached=reached)

    async def _call(
        self,
        request: FrozenRequest,
        *,
        lease_ends: float,
        start: Start,
        mark_start: MarkStart | None = None,
        unserved: bool = False,
    ) -> CallEnd:
        latest = lease_ends - self.margin - self.provider.contract.deadline
        refused = await self.enter(latest, unserved=unserved)
        if refused is not None:
            return NotSent(refused, given_back=True)
        try:
            if self.provider.contract.traceparent:
                request = tracing.traced(request)
            ended = await self._transport.exchange(
                self.account, request, lease_ends=lease_ends, start=start, mark_start=mark_start
            )
            # Here, because every call and every question passes: no reader has to think of it.
            asked = request.method == "GET"
            return self.provider.contract.own(ended, asked=asked) if isinstance(ended, Response) else ended
        finally:
            self.leave()

    def _classified(self, response: Response) -> tuple[Outcome, Seen]:
        try:
            return self.provider.classify(response)
        except Exception as error:
            return Ambiguous(), Seen(error=type(error).__name__, note="the contract could not read the response")


def _failed_write(error: Exception) -> Outcome:
    return NotExecuted("config") if isinstance(error, ConfigError) else Ambiguous()


def _failure(error: Exception, note: str, *, started: bool = False) -> Seen:
    if isinstance(error, ConfigError):
        return Seen(error="ConfigError", note=str(error))
    return Seen(error=type(error).__name__, note=note, started=started)
