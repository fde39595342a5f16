"""The calls of one lane through the functions of a `SendProvider`. A synchronous one runs in a thread (hazard 55)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from idem.outbox.calls.call_end import NEVER_OURS, CallEnd, Lost, MarkStart, NotSent, Start, last_check
from idem.outbox.calls.in_task import InTask
from idem.outbox.calls.user_code import Running, is_async
from idem.outbox.domain.contract import Account, FrozenRequest
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.sending import Sending, SendRequest, StillSending
from idem.outbox.observe import telemetry
from idem.outbox.providers.send import Asking, SendProvider, returned, sent
from idem.outbox.values import clock
from idem.outbox.values.errors import LeaseTooShort


@dataclass(slots=True)
class _Raised:
    error: BaseException


class FunctionTransport:
    """Makes the calls of one lane (`idem.outbox.calls.transport.Transport`). Belongs to one event loop.

    The claim counts as started, and is marked so, before the function begins: one that forgets `Sending.start` loses
    the last check, but can never be taken for one that did not send. `left`: look-ups that were given up and still
    run; each keeps a slot.
    """

    endless = True

    def __init__(self, provider: SendProvider, slots: int, margin: float) -> None:
        self._provider = provider
        self._slots = slots
        self._margin = margin
        self._sends_in_task = is_async(provider.send)
        self._in_task = InTask(provider.contract.provider)
        self.left = 0

    async def exchange(
        self, account: Account, request: FrozenRequest, *, lease_ends: float, start: Start, mark_start: MarkStart | None
    ) -> CallEnd:
        """Call the function once and wait until it has ended, beyond its deadline too.

        Raises StillSending if the waiting is cancelled while it runs and cannot be ended. Whatever the function raises
        is Lost, but for what `Sending.start` has raised itself.
        """
        contract, began = self._provider.contract, clock.boottime()
        ends = min(began + contract.deadline, lease_ends - self._margin)
        if isinstance(request, Asking):
            return await self._ask(account, request, ends)
        call = Sending(ends=ends, lease_ends=lease_ends, needed=contract.deadline + self._margin)
        if (refused := await _refused(call, start, mark_start)) is not None:
            return NotSent(refused, given_back=True)
        given = self._provider.given(request, account)
        try:
            value = await self._sent(account, given, call, ends)
        except RuntimeError as error:
            # The system has no thread left: nothing of the function has run.
            return NotSent(Seen(error=type(error).__name__, note="no thread could be started"), given_back=False)
        if isinstance(value, _Raised):
            return _end_of(value.error, call, clock.boottime() - began)
        if not call.started:
            telemetry.unchecked(contract.provider)
        return sent(value, contract.retry_after_cap)

    async def _sent(self, account: Account, given: SendRequest, call: Sending, ends: float) -> object:
        """What the function has returned, or what it has raised. Raises RuntimeError: no thread could be started."""
        send: Callable[..., Any] = self._provider.send
        if self._sends_in_task:
            try:
                return await self._in_task.run(send, given, call, ends=ends, account=account.name)
            except NEVER_OURS:
                raise
            except BaseException as error:
                return _Raised(error)
        running = self._run(account, send, given, call, ends=ends)
        if not await running.until_ended():
            raise StillSending
        try:
            return running.result()
        except BaseException as error:
            return _Raised(error)

    async def close(self) -> None:
        """Nothing is idle; a thread that still runs ends by itself, or with the process."""

    async def _ask(self, account: Account, request: Asking, ends: float) -> CallEnd:
        ask_about, began = self._provider.ask_about, clock.boottime()
        if ask_about is None or self.left >= self._slots:
            return NotSent(Seen(note="given back: earlier look-ups have not ended"), given_back=True)
        running = self._run(account, ask_about, request.question, ends=ends)
        try:
            if not await running.in_time():
                raise TimeoutError
            return returned(running.result())
        except BaseException as error:
            if not running.ended.done():
                if running.can_be_ended:
                    running.ended.cancel()
                self.left += 1
                running.ended.add_done_callback(self._one_less)
            return Lost(_seen(error, "the look-up returned nothing", clock.boottime() - began))

    def _run(self, account: Account, function: Callable[..., Any], *arguments: object, ends: float) -> Running:
        names = self._provider.contract.provider, account.name

        def overran() -> None:
            telemetry.overran(*names)
            running.ended.add_done_callback(lambda _: telemetry.ended_after_all(*names))

        running = Running(function, *arguments, ends=ends, overran=overran)
        return running

    def _one_less(self, _: asyncio.Future[Any]) -> None:
        self.left -= 1


async def _refused(call: Sending, start: Start, mark_start: MarkStart | None) -> Seen | None:
    """Why the call may not begin; None: it may. Nothing has been sent by then."""
    try:
        call.check()
        await last_check(start, mark_start)
        if mark_start is not None:
            # The mark may have taken long.
            call.check()
    except NEVER_OURS:
        raise
    except LeaseTooShort as error:
        return Seen(error=LeaseTooShort.__name__, note=f"given back: {error}")
    except BaseException as error:
        return Seen(error=type(error).__name__, note="given back: the start could not be recorded")
    return None


def _end_of(error: BaseException, call: Sending, elapsed: float) -> CallEnd:
    """What it says of a call that it has raised this."""
    if error is call.stopped:
        return NotSent(Seen(error=type(error).__name__, note=str(error), elapsed=elapsed), given_back=True)
    when = ", which proves nothing" if call.started else " before it called start()"
    return Lost(_seen(error, f"send raised an exception{when}", elapsed))


def _seen(error: BaseException, note: str, elapsed: float) -> Seen:
    # Never its own text, which can quote a credential or a recipient.
    return Seen(error=type(error).__name__, note=note, started=True, elapsed=elapsed)
