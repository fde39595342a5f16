"""A call that the application's own code makes, under a lease, with one report of how it ended.

    with book.inline(Parcel(...), key=key) as run:
        if run.mine:                                   # False: a retry; run.answer() knows
            response = carrier.post("/labels", ..., timeout=run.remaining)
            run.complete(Succeeded(response["id"]))
    return run.answer()

The row is committed before the block begins. A block that raises, or reports nothing, has ended `ambiguous`; a process
that dies leaves its lease to run out: both are `unknown`, and settled by what the provider says.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from idem.application import connections, replies
from idem.application.keyed_request import KeyedRequest
from idem.application.misuse import InTransaction, OutOfOrder
from idem.application.replies import Reply
from idem.outbox.accept import known_keys
from idem.outbox.accept.prepare import REFUSED_NOW, Prepared
from idem.outbox.domain.decisions import Decision
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outcomes import Pending, Refused, Seen, Succeeded
from idem.outbox.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from idem.application.background import ApplicationLoop
    from idem.outbox.inline import InlineRun

Result = TypeVar("Result")
Preparing = Callable[[bytes], Prepared]
"""Makes the call's row, out of the installation's secret."""


class _Inline:
    """What both ways share. Everything of the run happens on idem's own loop and connections."""

    def __init__(
        self, background: ApplicationLoop, request: KeyedRequest | Reply, prepare: Preparing, db: object = None
    ) -> None:
        if db is not None and connections.adapt(db).in_transaction():
            raise InTransaction
        self._background = background
        self._request = request if isinstance(request, KeyedRequest) else None
        self._refused = request if isinstance(request, Reply) else None
        self._prepare = prepare
        self._decided: Decision | None = None
        self._run: InlineRun | None = None

    @property
    def mine(self) -> bool:
        """Whether this caller is to make the call, now and once. False: a retry, or a request that was refused."""
        return self._run is not None

    @property
    def provider_key(self) -> str:
        """The key to send with the call: by it the provider can tell a repetition, and be asked."""
        return self._mine().provider_key

    @property
    def remaining(self) -> float:
        """Seconds for which the call may take, at the most; 0 once the lease is lost."""
        return self._mine().remaining

    @property
    def lost(self) -> bool:
        """Whether the lease ran out before a report: what the call showed is still to be reported."""
        return self._mine().lost

    @property
    def attempt(self) -> int:
        """1, and one more for each time that the client's retry took up what was proven not executed."""
        return self._mine().attempt

    def _mine(self) -> InlineRun:
        if self._run is None:
            raise OutOfOrder("this call is not yours to make: look at `mine` first, inside of the `with` block")
        return self._run

    async def _begin(self) -> None:
        if self._request is None:
            return
        try:
            prepared = self._prepare(await self._background.secret())
            runs = await self._background.runs()
        except (*REFUSED_NOW, OutOfOrder) as refused:
            # The operation refuses it now; it may be the retry of one that was accepted before.
            found = await self._background.recall(self._request)
            self._decided = known_keys.decision(found, refused, inline=True)
            if found is not None:
                self._request = dataclasses.replace(self._request, fingerprint=found.fingerprint)
            return
        first = dataclasses.replace(prepared, fingerprint=self._request.fingerprint)
        begun = await self._background.asking(lambda: runs.begin(first))
        if (composed := self._request.as_stored(begun)) is not None:
            self._request = composed
            second = dataclasses.replace(prepared, fingerprint=composed.fingerprint)
            begun = await self._background.asking(lambda: runs.begin(second))
        if isinstance(begun, Decision):
            self._decided = begun
        else:
            self._run = begun
            await begun.__aenter__()

    async def _give_back(self) -> None:
        # Its caller was interrupted before the block: without this the lease is renewed for a call that never comes.
        if self._run is not None:
            with contextlib.suppress(StoreUnavailable):
                await self._run.not_executed("its caller was gone before the block began")

    async def _end(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            await self._run.__aexit__(kind, raised, trace)

    async def _answer(self, wait: timedelta | float | None) -> Answer:
        if self._refused is not None:
            return self._refused.answer
        assert self._request is not None
        if self._decided is None and self._run is None:
            raise OutOfOrder("answer() was called before the block: `with …inline(…) as run:` begins it")
        seconds = replies.patience(self._request, wait)
        end = await self._background.status(self._request, seconds)
        repeated = self._run is None
        return replies.reply(self._request, end, repeated=repeated, waited=seconds or None).answer


class InlineCall(_Inline):
    """An inline call in synchronous code."""

    def __enter__(self) -> Self:
        try:
            self._background.call(self._begin())
        except BaseException:
            self._background.send(self._give_back())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.call(self._end(kind, raised, trace))

    def complete(self, outcome: Succeeded | Refused | Pending, *, http_status: int | None = None) -> None:
        """Report what the provider answered: it happened, was refused, or is in progress.

        Raises StoreUnavailable where the database stayed away: the lease runs out then, and the key will say it.
        """
        self._background.call(self._mine().complete(outcome, Seen(http_status=http_status, started=True)))

    def not_executed(self, why: str) -> None:
        """Report that nothing happened, for certain; the client's retry makes the call again."""
        self._background.call(self._mine().not_executed(why))

    def ambiguous(self, note: str) -> None:
        """Report that the outcome is not known: the key is `unknown` until it is settled."""
        self._background.call(self._mine().ambiguous(note))

    def answer(self, wait: timedelta | float | None = None) -> Answer:
        """The client's answer. Raises StoreUnavailable if the database cannot say."""
        return self._background.call(self._answer(wait))


class AsyncInlineCall(_Inline):
    """An inline call in asynchronous code."""

    async def __aenter__(self) -> Self:
        try:
            await self._background.call_async(self._begin())
        except BaseException:
            self._background.send(self._give_back())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._background.call_async(self._end(kind, raised, trace))

    async def complete(self, outcome: Succeeded | Refused | Pending, *, http_status: int | None = None) -> None:
        """Report what the provider answered: it happened, was refused, or is in progress.

        Raises StoreUnavailable where the database stayed away: the lease runs out then, and the key will say it.
        """
        await self._background.call_async(self._mine().complete(outcome, Seen(http_status=http_status, started=True)))

    async def not_executed(self, why: str) -> None:
        """Report that nothing happened, for certain; the client's retry makes the call again."""
        await self._background.call_async(self._mine().not_executed(why))

    async def ambiguous(self, note: str) -> None:
        """Report that the outcome is not known: the key is `unknown` until it is settled."""
        await self._background.call_async(self._mine().ambiguous(note))

    async def answer(self, wait: timedelta | float | None = None) -> Answer:
        """The client's answer. Raises StoreUnavailable if the database cannot say."""
        return await self._background.call_async(self._answer(wait))
