"""One lane: everything that calls one account of one provider, so that a slow or broken one holds up nobody else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace

import httpx

from idem.outbox import clock
from idem.outbox.breaker import Breaker
from idem.outbox.call import Lost, MarkStart, NotSent, Start, call
from idem.outbox.client import check_account, ssl_context, stock_client
from idem.outbox.contract import Account, FrozenRequest, Provider, Question, Response
from idem.outbox.errors import ConfigError
from idem.outbox.outcomes import Ambiguous, CouldNotAsk, Look, NotExecuted, Outcome, Seen
from idem.outbox.resolve import Resolver


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
        tls: ssl.SSLContext | None = None,
    ) -> None:
        check_account(account)
        self.provider = provider
        self.account = account
        self.slots = slots
        self.margin = margin
        self.breaker = breaker or Breaker()
        self._resolver = resolver or Resolver()
        self._tls = tls or ssl_context()
        self._turn = asyncio.Semaphore(slots)
        self._idle: list[httpx.AsyncClient] = []
        self._taken = 0
        self._closed = False

    @property
    def free(self) -> int:
        """Slots in which a call could begin at once."""
        return max(0, self.slots - self._taken)

    def room(self) -> int:
        """How many rows may be claimed now: the free slots, as far as the breaker lets them."""
        return 0 if self._closed else min(self.free, self.breaker.room(clock.boottime()))

    async def send(
        self,
        row_id: Hashable,
        request: FrozenRequest,
        *,
        lease_ends: float,
        start: Start,
        mark_start: MarkStart | None = None,
    ) -> tuple[Outcome, Seen]:
        """Make a write, first send or replay alike, and say what it came to.

        Raises no Exception and no CancelledError: the caller must bring the outcome to the row in every case, and asks
        its task whether it was cancelled. `given_back` means that the provider was not called and is not the reason.
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
            ended = await self._call(request, lease_ends=lease_ends, start=start, mark_start=mark_start)
            match ended:
                case Response():
                    outcome, seen = self._classified(ended)
                    seen = _told(seen, ended, clock.boottime() - began)
                    trouble = ended.status >= 500 or not ended.complete
                case NotSent(seen=seen, given_back=given_back):
                    outcome = NotExecuted("given_back" if given_back else "transport")
                case Lost(seen=seen):
                    outcome = Ambiguous()
                    # The end of our own task says nothing about the provider.
                    trouble = seen.error != asyncio.CancelledError.__name__
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
        look: Look = CouldNotAsk()
        seen = Seen(note="this row cannot be asked about")
        reached: bool | None = None
        try:
            for request in self.provider.questions(question):
                began = clock.boottime()
                ended = await self._call(request, lease_ends=lease_ends, start=lambda: True, mark_start=None)
                match ended:
                    case Response():
                        reached = ended.status < 500
                        look, seen = self._read(ended, question, request)
                        seen = _told(seen, ended, clock.boottime() - began)
                        if not isinstance(look, CouldNotAsk):
                            break
                    case NotSent(seen=seen, given_back=given_back):
                        look, reached = CouldNotAsk(), None if given_back else False
                        break
                    case Lost(seen=seen):
                        look, reached = CouldNotAsk(), False
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    reached = None
                    break
        except ConfigError as error:
            look, seen = CouldNotAsk(), Seen(error="ConfigError", note=str(error))
        except Exception as error:
            look, seen = CouldNotAsk(), Seen(error=type(error).__name__, note="the question failed here")
        finally:
            if reached is None:
                self.breaker.record(key, NotExecuted("given_back"), clock.boottime())
            else:
                self.breaker.record_look(key, clock.boottime(), reached=reached)
        return look, seen

    async def close(self) -> None:
        """Close what is idle; calls that run are finished, and their clients closed by them."""
        self._closed = True
        self._resolver.close()
        while self._idle:
            await _discard(self._idle.pop())

    async def _call(
        self, request: FrozenRequest, *, lease_ends: float, start: Start, mark_start: MarkStart | None
    ) -> Response | NotSent | Lost:
        latest = lease_ends - self.margin - self.provider.contract.deadline
        self._taken += 1
        try:
            try:
                # A row that waits for a slot until its lease is too short is given back, not left waiting.
                async with asyncio.timeout(max(0.0, latest - clock.boottime())):
                    await self._turn.acquire()
            except (TimeoutError, asyncio.CancelledError) as error:
                return NotSent(Seen(error=type(error).__name__, note="given back: no slot was free"), given_back=True)
            try:
                return await self._in_slot(request, lease_ends=lease_ends, start=start, mark_start=mark_start)
            finally:
                self._turn.release()
        finally:
            self._taken -= 1

    async def _in_slot(
        self, request: FrozenRequest, *, lease_ends: float, start: Start, mark_start: MarkStart | None
    ) -> Response | NotSent | Lost:
        if self._closed:
            return NotSent(Seen(note="given back: the lane is closed"), given_back=True)
        client = self._idle.pop() if self._idle else stock_client(self._tls, self.provider.contract)
        sound = False
        try:
            ended = await call(
                client,
                self.account,
                request,
                contract=self.provider.contract,
                lease_ends=lease_ends,
                margin=self.margin,
                start=start,
                mark_start=mark_start,
                resolver=self._resolver,
            )
            sound = isinstance(ended, Response) and ended.complete
            return ended
        finally:
            # Of a client whose call broke off nobody knows what is left in its pool of one connection.
            if sound and not self._closed:
                # It keeps every Set-Cookie, though none is ever sent.
                client.cookies.clear()
                self._idle.append(client)
            else:
                await _discard(client)

    def _classified(self, response: Response) -> tuple[Outcome, Seen]:
        try:
            return self.provider.classify(response)
        except Exception as error:
            return Ambiguous(), Seen(error=type(error).__name__, note="the contract could not read the response")

    def _read(self, response: Response, question: Question, request: FrozenRequest) -> tuple[Look, Seen]:
        try:
            return self.provider.read_look(response, question, request)
        except Exception as error:
            return CouldNotAsk(), Seen(error=type(error).__name__, note="the contract could not read the response")


def _told(seen: Seen, response: Response, elapsed: float) -> Seen:
    return replace(
        seen,
        http_status=response.status,
        note=seen.note or (None if response.complete else "the body of the response is not complete"),
        started=True,
        elapsed=elapsed,
    )


async def _discard(client: httpx.AsyncClient) -> None:
    # What the call came to is known by now, and must not get lost by cleaning up.
    with suppress(Exception, asyncio.CancelledError):
        await client.aclose()
