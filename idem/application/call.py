"""A call: one request of a client, in the user's own endpoint. Reserve, their rows, submit; commit; the answer.

`Call` is for synchronous code, `AsyncCall` for asynchronous code:

    async with db.begin():
        if await call.reserve(db):
            ...                                  # their own rows, once
            await call.submit(db, params)
    return response(await call.answer(wait=timedelta(seconds=8)))

What is wrong with the request itself (no key, key reused) is an answer too: `reserve` is False, and `answer` says it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from idem.application import connections, replies, statements, waiting
from idem.application.connections import ConnectionAdapter
from idem.application.inline import AsyncInlineCall, InlineCall
from idem.application.keyed_request import KeyedRequest
from idem.application.misuse import NotCommitted, NoTransaction, NotStored, OutOfOrder
from idem.application.replies import Reply
from idem.application.statements import Reserved, ReserveResult
from idem.outbox.accept.status import Status
from idem.outbox.domain.decisions import Accepted, InProgress, Retrying, Unknown
from idem.outbox.domain.operation import Answer, check_answer, versioned

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from idem.application.operation import Operation

Result = TypeVar("Result")


class _BaseCall:
    """What `AsyncCall` and `Call` share: the order of things, and what is written."""

    def __init__(self, operation: Operation[Any], request: KeyedRequest | Reply) -> None:
        self._operation = operation
        self._request = request if isinstance(request, KeyedRequest) else None
        self._refused = request if isinstance(request, Reply) else None
        self._reservation: ReserveResult | None = None
        self._adapter: ConnectionAdapter | None = None
        self._done: Literal["submitted", "completed"] | None = None

    @property
    def tenant(self) -> str:
        """Whose request this is. Raises OutOfOrder for a request that was refused."""
        return self._accepted_request().tenant

    @property
    def key(self) -> str:
        """Its idempotency key. Raises OutOfOrder for a request that was refused."""
        return self._accepted_request().key

    def _reserve(self, connection: object) -> bool:
        if self._refused is not None:
            return False
        if self._reservation is not None and self._adapter is not None and not self._adapter.ended():
            raise OutOfOrder("reserve() was called a second time: a call stands for one request of a client")
        # As any statement of SQLAlchemy does, and as accept does.
        adapter = connections.adapt(connection, begin=True)
        if not adapter.in_transaction():
            raise NoTransaction
        # A transaction that failed (40001 at its COMMIT) is run again from its beginning: so is this.
        self._adapter, self._reservation, self._done = adapter, None, None
        self._reservation, self._request = statements.reserve(adapter, self._accepted_request())
        return isinstance(self._reservation, Reserved)

    def _submit(self, connection: object, params: Any, ordering_key: str | None, asked_by: str | None) -> None:
        reserved, adapter = self._reserved(connection, "submit")
        if self._operation.kind != "provider":
            raise OutOfOrder("this operation calls no provider: end it with complete(), or name its provider")
        prepared = self._operation.prepared(adapter, self._accepted_request(), params, ordering_key, asked_by)
        statements.submit(adapter, reserved.intent_id, prepared)
        self._done = "submitted"

    def _complete(self, connection: object, answer: Answer, outcome: Literal["local", "refused"]) -> None:
        reserved, adapter = self._reserved(connection, "complete" if outcome == "local" else "refuse")
        least, what = (200, "2xx to 4xx") if outcome == "local" else (400, "4xx")
        if not least <= answer.status < 500:
            raise OutOfOrder(f"an answer with status {answer.status} cannot be stored here: {what} can")
        try:
            check_answer(answer)
        except (TypeError, ValueError) as error:
            raise OutOfOrder(f"{error}: it could never be sent, so it is not stored") from error
        request = self._accepted_request()
        answer = versioned(answer, request.operation.answer_version)
        label = self._operation.spec.label(request.params)
        statements.complete(adapter, reserved.intent_id, request, outcome, answer, label)
        self._done = "completed"

    def _reserved(self, connection: object, word: str) -> tuple[Reserved, ConnectionAdapter]:
        if not isinstance(self._reservation, Reserved):
            raise OutOfOrder(f"{word}() is only for a new request: call it where reserve() has returned True")
        adapter = connections.adapt(connection)
        # A SAVEPOINT that was rolled back has taken the end back, and the reservation stands open again.
        if self._done is not None and not statements.still_open(
            adapter, self._reservation.intent_id, self._accepted_request()
        ):
            raise OutOfOrder(f"{word}() was called, but this call was {self._done} before")
        return self._reservation, adapter

    def _accepted_request(self) -> KeyedRequest:
        if self._request is None:
            raise OutOfOrder("this request was refused before it began: answer() says why, and reserve() is False")
        return self._request

    def _request_or_refusal(self) -> KeyedRequest | Reply:
        found = self._request if self._refused is None else self._refused
        assert found is not None
        return found

    def _known(self, wait: timedelta | float | None) -> Reply | float:
        """The answer, if it is known already; else the seconds for which to wait for it."""
        if self._refused is not None:
            return self._refused
        decided, adapter = self._reservation, self._adapter
        if decided is None or adapter is None:
            raise OutOfOrder("answer() was called before reserve(): nothing has been decided about this request")
        over = adapter.ended()
        if isinstance(decided, Reserved) and self._done is None:
            if over:
                raise NotStored  # it cannot have been committed
            raise OutOfOrder("answer() was called, but after reserve() nothing was submitted, completed or refused")
        if isinstance(decided, Reserved | Retrying | Accepted):
            if not over:
                raise NotCommitted
        elif not isinstance(decided, InProgress | Unknown):
            return replies.reply(self._accepted_request(), decided, repeated=True)
        seconds = replies.patience(self._accepted_request(), wait)
        if isinstance(decided, InProgress | Unknown) and not (over and seconds):
            # Nobody waits inside an open transaction.
            return replies.reply(self._accepted_request(), decided, repeated=True)
        return seconds

    @property
    def _ours(self) -> bool:
        return isinstance(self._reservation, Reserved)

    def _reply(self, end: Status | None, seconds: float) -> Reply:
        if end is None and isinstance(self._reservation, InProgress | Unknown):
            end = self._reservation  # the other caller has not committed, or has rolled back: nothing changed
        if end is None:
            raise NotStored
        repeated = not isinstance(self._reservation, Reserved | Retrying)
        return replies.reply(self._accepted_request(), end, repeated=repeated, waited=seconds or None)

    def _wake(self) -> None:
        if self._adapter is None:
            return
        if isinstance(self._reservation, Retrying):
            self._operation.wake(self._adapter, self._reservation.status)
        elif self._done == "submitted":
            self._operation.wake(self._adapter, "pending")


class Call(_BaseCall):
    """A call in synchronous code: a SQLAlchemy Connection or Session, a psycopg Connection, Django's `connection`."""

    def reserve(self, db: Any) -> bool:
        """Whether this request is new: then it is to be submitted, completed or refused in this transaction.

        False: it is a retry, or it was refused; nothing of yours is to be written, and `answer` knows what to say. A
        key at rest goes back to work here. A session or connection of SQLAlchemy that has not begun begins here; you
        commit. Raises NoTransaction in autocommit, RetryTransaction (run your transaction again), StoreUnavailable, and
        Unserved for a key at rest whose call no worker would make now.
        """
        return self._reserve(db)

    def submit(self, db: Any, params: Any, *, ordering_key: str | None = None, asked_by: str | None = None) -> None:
        """Ask for the effect, in the transaction of `reserve`: a worker makes the call after your commit.

        `ordering_key`: what has the same one runs one at a time, in the order of the commits. This waits until other
        transactions have ended that have submitted something of the same key, and they wait for yours: keep it short.
        `asked_by`: who asks, where the operation wants an approval. Raises ParamsInvalid, BodyInvalid and
        Unrenderable for params that no request can be made of.
        """
        self._submit(db, params, ordering_key, asked_by)

    def complete(self, db: Any, answer: Answer) -> None:
        """Store the answer of a local operation: your rows, in this transaction, are the effect."""
        self._complete(db, answer, "local")

    def refuse(self, db: Any, answer: Answer) -> None:
        """Store a 4xx as this request's answer: nothing is called, now or later."""
        self._complete(db, answer, "refused")

    def inline(self, params: Any, *, db: Any = None) -> InlineCall:
        """Make the call in your own code, under a lease: `with call.inline(params) as run: …`. Instead of `reserve`."""
        return InlineCall(*self._operation.inline_of(self._request_or_refusal(), params), db)

    def answer(self, wait: timedelta | float | None = None) -> Answer:
        """The client's answer, after the commit; it waits for the end for `wait` (or seconds).

        `return response(call.answer())` in an endpoint of FastAPI or Starlette. Raises NotCommitted, NotStored, and
        StoreUnavailable if the database cannot say.
        """
        known = self._known(wait)
        if isinstance(known, Reply):
            return known.answer
        self._wake()
        assert self._adapter is not None
        return self._reply(waiting.wait(self._adapter, self._accepted_request(), known, ours=self._ours), known).answer


class AsyncCall(_BaseCall):
    """A call in asynchronous code: a SQLAlchemy AsyncSession or AsyncConnection, over psycopg or asyncpg."""

    async def reserve(self, db: AsyncConnection | AsyncSession) -> bool:
        """Whether this request is new: then it is to be submitted, completed or refused in this transaction.

        False: it is a retry, or it was refused; nothing of yours is to be written, and `answer` knows what to say. A
        key at rest goes back to work here. A session or connection of SQLAlchemy that has not begun begins here; you
        commit. Raises NoTransaction in autocommit, RetryTransaction (run your transaction again), StoreUnavailable, and
        Unserved for a key at rest whose call no worker would make now.
        """
        return await in_callers_session(db, self._reserve)

    async def submit(
        self, db: AsyncConnection | AsyncSession, params: Any, *, ordering_key: str | None = None,
        asked_by: str | None = None,
    ) -> None:  # fmt: skip
        """Ask for the effect, in the transaction of `reserve`: a worker makes the call after your commit.

        `ordering_key`: what has the same one runs one at a time, in the order of the commits. This waits until other
        transactions have ended that have submitted something of the same key, and they wait for yours: keep it short.
        `asked_by`: who asks, where the operation wants an approval. Raises ParamsInvalid, BodyInvalid and
        Unrenderable for params that no request can be made of.
        """
        await in_callers_session(db, lambda sync: self._submit(sync, params, ordering_key, asked_by))

    async def complete(self, db: AsyncConnection | AsyncSession, answer: Answer) -> None:
        """Store the answer of a local operation: your rows, in this transaction, are the effect."""
        await in_callers_session(db, lambda sync: self._complete(sync, answer, "local"))

    async def refuse(self, db: AsyncConnection | AsyncSession, answer: Answer) -> None:
        """Store a 4xx as this request's answer: nothing is called, now or later."""
        await in_callers_session(db, lambda sync: self._complete(sync, answer, "refused"))

    def inline(self, params: Any, *, db: AsyncConnection | AsyncSession | None = None) -> AsyncInlineCall:
        """Make the call in your own code, under a lease: `async with call.inline(params) as run: …`. Instead of
        `reserve`."""
        return AsyncInlineCall(*self._operation.inline_of(self._request_or_refusal(), params), synchronous(db))

    async def answer(self, wait: timedelta | float | None = None) -> Answer:
        """The client's answer, after the commit; it waits for the end for `wait` (or seconds).

        `return response(await call.answer())` in an endpoint of FastAPI or Starlette. Raises NotCommitted, NotStored,
        and StoreUnavailable if the database cannot say.
        """
        known = self._known(wait)
        if isinstance(known, Reply):
            return known.answer
        self._wake()
        assert self._adapter is not None
        end = await waiting.wait_async(self._adapter, self._accepted_request(), known, ours=self._ours)
        return self._reply(end, known).answer


def synchronous(db: Any) -> Any:
    """What stands behind an asynchronous session or connection; anything else is itself."""
    session = _own(db)
    return getattr(session, "sync_session", None) or getattr(session, "sync_connection", None) or session


def _own(db: Any) -> Any:
    # An async_scoped_session stands for that of this task.
    return db() if not hasattr(db, "run_sync") and hasattr(db, "registry") else db


async def in_callers_session(db: AsyncConnection | AsyncSession, work: Callable[[Any], Result]) -> Result:
    """Do this with the synchronous side of an asynchronous session or connection. Raises OutOfOrder for another."""
    session = _own(db)
    if not hasattr(session, "run_sync"):
        raise OutOfOrder(
            f"{type(db).__name__} cannot be used here: this call takes SQLAlchemy's AsyncSession or AsyncConnection; "
            "in code without `async`, use `call` (or begin)"
        )
    return cast(Result, await session.run_sync(work))
