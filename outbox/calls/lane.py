"""One lane: all calls to one account of one provider, so that a slow or broken lane delays no other."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncGenerator, Awaitable, Hashable
from functools import partial

from idem.outbox.calls import lookup_pages
from idem.outbox.calls.breaker import Breaker
from idem.outbox.calls.http_call import Lost, MarkStart, NotSent, Start
from idem.outbox.calls.lookup_pages import Cancelled, LookupResult, observed
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.calls.transport import transport
from idem.outbox.domain.contract import Account, FrozenRequest, Response
from idem.outbox.domain.outcomes import Ambiguous, CouldNotAsk, Look, NotExecuted, Outcome, Seen
from idem.outbox.domain.provider import Item, Provider, Question
from idem.outbox.domain.rate_limit import Pacer
from idem.outbox.domain.redaction import quoted
from idem.outbox.domain.sending import StillSending
from idem.outbox.providers import tracing
from idem.outbox.values import clock, threads
from idem.outbox.values.errors import ConfigError


class Lane:
    """The slots of one (provider, account) in this process, with their clients, names and breaker.

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
        self.slots = slots
        self.margin = margin
        self.breaker = breaker or Breaker()
        self.pacer = pacer or Pacer(provider.contract.limits.rate)
        self._transport = transport(provider, account, slots=slots, margin=margin, resolver=resolver, tls=tls)
        self._turn = asyncio.Semaphore(slots)
        self.served = True
        """Whether rows of this lane may be called for by this process; what runs when it ends is finished."""
        self._taken = 0
        self._closed = False

    @property
    def free(self) -> int:
        """Slots in which a call could begin at once."""
        return max(0, self.slots - self._busy)

    @property
    def endless(self) -> bool:
        """Whether a write may outlive its deadline and lease, because nobody can end it: `send` then waits for it."""
        return self._transport.endless

    def room(self, held: int = 0, keep: int = 0) -> int:
        """How many rows may be claimed now: the free slots but `keep` of them, as far as breaker and pace let them.

        `held`: rows that were claimed already and are not done; those that wait for their task have taken neither a
        slot nor a token yet.
        """
        if self._closed or not self.served:
            return 0
        now, taken = clock.boottime(), max(held, self._taken) + self._transport.left
        room = min(self.slots - keep - taken, self.breaker.at_once - taken, self.breaker.room(now))
        if (paced := self.pacer.room(now)) is not None:
            room = min(room, paced - (taken - self._busy))
        return max(0, room)

    def wait(self, longest: float) -> float:
        """Seconds, `longest` at the most, until it is worth asking for room again; a slot that gets free is sooner."""
        now = clock.boottime()
        return min(longest, max(0.05, self.breaker.wait(now), self.pacer.wait(now)))

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
            began = clock.boottime()
            # The last check before the first byte keeps deadline and margin free before the end of a lease.
            ends = min(lease_ends, send_by + self.provider.contract.deadline + self.margin)
            ended = await self._call(request, lease_ends=ends, start=start, mark_start=mark_start)
            match ended:
                case Response():
                    elapsed = clock.boottime() - began
                    outcome, seen = await threads.read_to_the_end(ended.body, partial(self._classified, ended))
                    seen = quoted(observed(seen, ended, elapsed), ended, outcome, self.account)
                    trouble = ended.status >= 500 or not ended.complete
                case NotSent(seen=seen, given_back=given_back):
                    outcome = NotExecuted("given_back" if given_back else "transport")
                case Lost(seen=seen):
                    outcome = Ambiguous()
                    # The end of our own task says nothing about the provider.
                    trouble = seen.error != asyncio.CancelledError.__name__
        except StillSending:
            raise
        except ConfigError as error:
            outcome, seen = NotExecuted("config"), Seen(error="ConfigError", note=str(error))
        except Exception as error:
            # Nothing is known to raise here; whatever does so one day has proven nothing.
            outcome, seen = Ambiguous(), Seen(error=type(error).__name__, note="the call failed here", started=True)
        finally:
            self.breaker.record(row_id, outcome, clock.boottime(), trouble=trouble)
        return outcome, seen

    async def ask(self, question: Question, *, lease_ends: float) -> tuple[Look, Seen]:
        """Ask the provider, best question first, until one gets an answer. Like `send` it does not raise."""
        key, now = question.provider_key, clock.boottime()
        if not self.breaker.may_call(key, now):
            return CouldNotAsk(self.breaker.wait(now) or None), Seen(note="the breaker is open")
        result = LookupResult(CouldNotAsk(), Seen(), None)
        try:
            result = await lookup_pages.ask(self.provider, question, self._asking(lease_ends))
        except ConfigError as error:
            result = LookupResult(CouldNotAsk(), Seen(error="ConfigError", note=str(error)), None)
        except Exception as error:
            result = LookupResult(
                CouldNotAsk(), Seen(error=type(error).__name__, note="the question failed here"), None
            )
        finally:
            self._record_look(key, result.reached)
        return result.look, result.seen

    async def cancel(self, question: Question, *, lease_ends: float) -> tuple[Look, Seen]:
        """Ask the provider to void everything that was sent under the key of this call. Like `send` it does not raise.

        `Absent`: nothing stands under it; whether nothing will, the contract says (`CancelRule.tombstones`).
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
        except ConfigError as error:
            seen = Seen(error="ConfigError", note=str(error))
            ended = Cancelled(CouldNotAsk(), seen, NotExecuted("config"))
        except Exception as error:
            seen = Seen(error=type(error).__name__, note="the cancel failed here", started=True)
            ended = Cancelled(CouldNotAsk(), seen, Ambiguous())
        finally:
            self.breaker.record(key, ended.outcome, clock.boottime(), trouble=ended.trouble)
        return ended.look, ended.seen

    async def list(self, since: float, until: float, *, patience: float = 60.0) -> AsyncGenerator[Item, None]:
        """Everything that the provider made between two times (POSIX seconds), in the order of its own list.

        `patience`: seconds that each page may wait for a slot. Raises ListFailed where the list was not read to its
        end, so that whoever counts must not take what was not shown for absent; ConfigError; CancelledError.
        """

        async def call(request: FrozenRequest) -> Response | NotSent | Lost:
            now = clock.boottime()
            if not self.breaker.may_call(since, now):
                return NotSent(Seen(note="the breaker is open"), given_back=True)
            reached: bool | None = None
            try:
                needed = patience + self.margin + self.provider.contract.deadline
                ended = await self._asking(now + needed)(request)
                if not isinstance(ended, NotSent) or not ended.given_back:
                    reached = isinstance(ended, Response) and ended.reached
                return ended
            finally:
                self._record_look(since, None if lookup_pages.cancelled() else reached)

        async for page in lookup_pages.listing(self.provider, since, until, call):
            for item in page.items:
                yield item

    async def whose(self, *, patience: float = 5.0) -> tuple[str | None, Seen]:
        """What names the account of these credentials, asked also where the lane is not served; None: nobody could
        tell. `patience`: seconds to wait for a slot. Like `send` it does not raise.
        """
        key, now, reached = ("account",), clock.boottime(), None
        if not self.breaker.may_call(key, now):
            return None, Seen(note="the breaker is open")
        lease_ends = now + patience + self.margin + self.provider.contract.deadline
        try:
            result = await lookup_pages.whose(self.provider, self._asking(lease_ends, always=True))
            reached = result.reached
            return result.account, result.seen
        except ConfigError as error:
            return None, Seen(error="ConfigError", note=str(error))
        except Exception as error:
            return None, Seen(error=type(error).__name__, note="the question failed here")
        finally:
            self._record_look(key, None if lookup_pages.cancelled() else reached)

    async def close(self) -> None:
        """Close what is idle; calls that run are finished, and their clients closed by them."""
        self._closed = True
        await self._transport.close()

    @property
    def _busy(self) -> int:
        return self._taken + self._transport.left

    def _asking(self, lease_ends: float, *, always: bool = False) -> lookup_pages.Ask:
        def call(request: FrozenRequest) -> Awaitable[Response | NotSent | Lost]:
            return self._call(request, lease_ends=lease_ends, start=lambda: True, always=always)

        return call

    def _record_look(self, key: Hashable, reached: bool | None) -> None:
        if reached is None:
            self.breaker.record(key, NotExecuted("given_back"), clock.boottime())
        else:
            self.breaker.record_look(key, clock.boottime(), reached=reached)

    async def _call(
        self,
        request: FrozenRequest,
        *,
        lease_ends: float,
        start: Start,
        mark_start: MarkStart | None = None,
        always: bool = False,
    ) -> Response | NotSent | Lost:
        latest = lease_ends - self.margin - self.provider.contract.deadline
        self._taken += 1
        try:
            try:
                # A row that waits for its turn until its lease is too short is given back, not left waiting.
                async with asyncio.timeout(max(0.0, latest - clock.boottime())):
                    await self._pace(latest)
                    await self._turn.acquire()
            except (TimeoutError, asyncio.CancelledError) as error:
                return NotSent(Seen(error=type(error).__name__, note="given back: no slot was free"), given_back=True)
            try:
                if self._closed or not (self.served or always):
                    other = "the credentials belong to another account, or the provider has not yet named their account"
                    why = "the lane is closed" if self._closed else other
                    return NotSent(Seen(note=f"given back: {why}"), given_back=True)
                if self.provider.contract.traceparent:
                    request = tracing.traced(request)
                ended = await self._transport.exchange(
                    self.account, request, lease_ends=lease_ends, start=start, mark_start=mark_start
                )
                # Here, because every call and every question passes: no reader has to think of it.
                asked = request.method == "GET"
                return self.provider.contract.own(ended, asked=asked) if isinstance(ended, Response) else ended
            finally:
                self._turn.release()
        finally:
            self._taken -= 1

    async def _pace(self, latest: float) -> None:
        """Wait for this call's token. Raises TimeoutError at once if that would be after `latest`."""
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

    def _classified(self, response: Response) -> tuple[Outcome, Seen]:
        try:
            return self.provider.classify(response)
        except Exception as error:
            return Ambiguous(), Seen(error=type(error).__name__, note="the contract could not read the response")
