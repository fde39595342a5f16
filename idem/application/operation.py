"""The handle of an operation in the user's code: calls in their endpoints, accepts in their transactions, handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload
from uuid import UUID

from idem.application import accepting, audit, connections, keyed_request, replies
from idem.application.call import AsyncCall, Call, in_callers_session, synchronous
from idem.application.connections import ConnectionAdapter
from idem.application.definition import Declared, Definition
from idem.application.inline import AsyncInlineCall, InlineCall, Preparing
from idem.application.keyed_request import KeyedRequest
from idem.application.misuse import Misuse, NoTransaction, OutOfOrder
from idem.application.options import ClientRequest, InlineRequest
from idem.application.replies import Reply
from idem.outbox.accept.prepare import Prepared, prepare
from idem.outbox.api import reading
from idem.outbox.domain import keys
from idem.outbox.domain.decisions import Accepted, Decision, Retrying
from idem.outbox.domain.operation import Kind, OperationSpec
from idem.outbox.http_server.problems import ProblemError
from idem.outbox.values import canonical
from idem.outbox.values.errors import BodyInvalid, ConfigError, KeyInvalid
from idem.outbox.values.suggestions import nearest

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from idem.application.app import Idem
    from idem.application.background import ApplicationLoop
    from idem.outbox.handlers.handler import Begin


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # in `typing` since Python 3.13

    P = TypeVarWithDefault("P", default=Any)
    """The type of the params; without a model, JSON."""
else:
    P = TypeVar("P")
Words = TypeVar("Words", ClientRequest, InlineRequest)
Handling = TypeVar("Handling", bound=Callable[..., Any])


class Operation(Generic[P]):
    """An operation, as `Idem.operation` returns it."""

    def __init__(self, idem: Idem, definition: Definition | Declared) -> None:
        self._idem = idem
        self.definition = definition
        self.name = definition.name

    @property
    def spec(self) -> OperationSpec:
        """Its data, as idem's daemons see it."""
        return self._idem.operations[self.name]

    @property
    def kind(self) -> Kind:
        """Who causes the effect."""
        return self.spec.kind

    @cached_property
    def call(self) -> Callable[..., Any]:
        """A dependency of FastAPI for endpoints without `async`: `call: Annotated[Call, Depends(charge.call)]`."""
        from idem.application.fastapi import dependency

        return dependency(self, Call, self._idem.tenant)

    @cached_property
    def call_async(self) -> Callable[..., Any]:
        """The same for `async def` endpoints: `call: Annotated[AsyncCall, Depends(charge.call_async)]`."""
        from idem.application.fastapi import dependency

        return dependency(self, AsyncCall, self._idem.tenant)

    def begin(self, **request: Unpack[ClientRequest]) -> Call:
        """A call outside of FastAPI: Flask, Django, a script, a consumer with the message's id as `key`.

        `body` is the client's: JSON as bytes or value, or other bytes. If something is wrong with it, `answer` says so.
        """
        return Call(self, self.request_or_problem(**self._known("begin", request)))

    def begin_async(self, **request: Unpack[ClientRequest]) -> AsyncCall:
        """The same for asynchronous code."""
        return AsyncCall(self, self.request_or_problem(**self._known("begin_async", request)))

    def covers(self, view: Handling) -> Handling:
        """Mark an endpoint that uses `begin` itself (Flask, Starlette): `audit` sees dependencies of FastAPI only.

        The innermost decorator, so that the framework gets the marked function.
        """
        return audit.covers(view, self.name)

    def accept(
        self, db: Any, params: P | Any, *, key: str, tenant: str = "default", traceparent: str | None = None,
        ordering_key: str | None = None, asked_by: str | None = None,
    ) -> Decision:  # fmt: skip
        """Reserve and submit in one round trip, in the caller's open transaction; the caller commits.

        `ordering_key`: what has the same one runs one at a time, in the order of the commits. This waits until other
        transactions have ended that have accepted something of the same key, and they wait for yours: keep it short.
        A session or connection of SQLAlchemy that has not begun begins here, as with any statement. The fingerprint is
        of the params. A key that is known is decided by what it was accepted under. `asked_by`: who asks, where the
        operation wants an approval. Raises NoTransaction in autocommit, KeyInvalid, BodyInvalid, ParamsInvalid,
        Unrenderable, Unserved, RetryTransaction and StoreUnavailable.
        """
        keyed_request.check_words(key=key, tenant=tenant)
        adapter = connections.adapt(db, begin=True)
        if not adapter.in_transaction():
            raise NoTransaction("accept")
        secret = self._idem.secret(adapter)
        decided = accepting.accept(
            adapter, self._idem.operations, self._idem.providers, secret, tenant=tenant, operation=self.name,
            key=keys.parse_key(key), params=self.definition.written(params), traceparent=traceparent,
            ordering_key=ordering_key, asked_by=asked_by,
        )  # fmt: skip
        if isinstance(decided, Accepted | Retrying):
            hint = self._idem.hint(adapter, self.spec.work_for(decided.status))
            if hint is not None:
                adapter.after_commit(hint)
        return decided

    async def accept_async(
        self,
        db: AsyncConnection | AsyncSession,
        params: P | Any,
        *,
        key: str,
        tenant: str = "default",
        traceparent: str | None = None,
        ordering_key: str | None = None,
        asked_by: str | None = None,
    ) -> Decision:
        """The same over AsyncConnection and AsyncSession, on their own connection and in their transaction."""
        return await in_callers_session(
            db,
            lambda sync: self.accept(
                sync, params, key=key, tenant=tenant, traceparent=traceparent, ordering_key=ordering_key,
                asked_by=asked_by,
            ),
        )  # fmt: skip

    def inline(self, params: P | Any, *, db: Any = None, **request: Unpack[InlineRequest]) -> InlineCall:
        """A call that your own code makes, under a lease: `with ship.inline(…) as run: …`.

        Without a `body` of a client the fingerprint is of the params. `db`: your session, so that an open transaction
        is refused (`InTransaction`). Needs the extra `daemon`.
        """
        return InlineCall(*self._inline(params, request), db)

    def inline_async(self, params: P | Any, *, db: Any = None, **request: Unpack[InlineRequest]) -> AsyncInlineCall:
        """The same for asynchronous code: `async with ship.inline_async(…) as run: …`."""
        return AsyncInlineCall(*self._inline(params, request), synchronous(db))

    def inline_of(
        self, request: KeyedRequest | Reply, params: P | Any
    ) -> tuple[ApplicationLoop, KeyedRequest | Reply, Preparing]:
        """What an inline call of a client's request is made of."""

        def prepare(secret: bytes) -> Prepared:
            assert isinstance(request, KeyedRequest)
            if self.kind != "inline":
                raise OutOfOrder(f"{self.name} is not inline: define it with inline=True")
            return self._prepare(secret, request.tenant, request.key, params, request.traceparent)

        return self._idem.background(), request, prepare

    @overload
    def on_settled(
        self, function: Handling, /, *, name: str | None = None, begin: Begin = "registered"
    ) -> Handling: ...
    @overload
    def on_settled(
        self, function: None = None, /, *, name: str | None = None, begin: Begin = "registered"
    ) -> Callable[[Handling], Handling]: ...

    def on_settled(
        self, function: Handling | None = None, /, *, name: str | None = None, begin: Begin = "registered"
    ) -> Handling | Callable[[Handling], Handling]:
        """Have a function called once for each event of an intent of this operation, in one transaction with its mark.

        It takes a Session (or Connection; async: AsyncSession, AsyncConnection) and a `Settled`. Workers that are
        started with `--app` run it. `name`: what its marks are kept under, in place of the function's module and name,
        so that it may be moved. `begin`: which events a new handler gets, those after it was `registered`, or all from
        the `first` that is kept. Raises ConfigError.
        """

        def register(given: Handling) -> Handling:
            self._idem.register(self, given, name=name, begin=begin)
            return given

        return register if function is None else register(function)

    @overload
    def on_step(self, function: Handling, /, *, name: str | None = None, begin: Begin = "registered") -> Handling: ...
    @overload
    def on_step(
        self, function: None = None, /, *, name: str | None = None, begin: Begin = "registered"
    ) -> Callable[[Handling], Handling]: ...

    def on_step(
        self, function: Handling | None = None, /, *, name: str | None = None, begin: Begin = "registered"
    ) -> Handling | Callable[[Handling], Handling]:
        """As `on_settled`, for each step of this operation that has ended: the `Settled` has its name in `step`, and
        how it ended in `step_outcome`. Raises ConfigError."""

        if not self.definition.steps:
            raise ConfigError(f'operations."{self.name}": it has no steps, so nothing would be told: use on_settled')

        def register(given: Handling) -> Handling:
            self._idem.register(self, given, name=name, begin=begin, hears="step")
            return given

        return register if function is None else register(function)

    def cancel(self, intent: UUID, *, by: str, reason: str) -> None:
        """Cancel what was certainly not sent. Raises OperatorRefused, which says why. Needs the extra `daemon`."""
        background = self._idem.background()
        background.call(background.cancel(intent, by=by, reason=reason))

    async def cancel_async(self, intent: UUID, *, by: str, reason: str) -> None:
        """The same for asynchronous code."""
        background = self._idem.background()
        await background.call_async(background.cancel(intent, by=by, reason=reason))

    # What a call needs of its operation.

    def prepared(
        self, adapter: ConnectionAdapter, request: KeyedRequest, params: Any, ordering_key: str | None = None,
        asked_by: str | None = None,
    ) -> Prepared:  # fmt: skip
        """What `submit` writes for a request with these params: its provider request is frozen."""
        secret = self._idem.secret(adapter)
        return self._prepare(secret, request.tenant, request.key, params, request.traceparent, ordering_key, asked_by)

    def wake(self, adapter: ConnectionAdapter, status: str) -> None:
        """Hint the workers that a row of this status waits."""
        if (hint := self._idem.hint(adapter, self.spec.work_for(status))) is not None:
            hint()

    def request_or_problem(
        self, *, key: str | None, tenant: str = "default", body: Any = None, method: str = "POST",
        path: str | None = None, query: str | Mapping[str, Any] | None = None, traceparent: str | None = None,
        wait: float | None = None,
    ) -> KeyedRequest | Reply:  # fmt: skip
        """A client's request, or the problem that answers it."""
        keyed_request.check_words(key=key, tenant=tenant)
        try:
            value: Any = body
            if isinstance(body, bytes | bytearray):
                value = _json(bytes(body))
            if (key is None or not key.strip(" \t")) and method.upper() not in keyed_request.NATURAL:
                raise reading.missing_key()
            return keyed_request.read(
                self.spec, tenant=tenant, key=key, method=method, path=path, query=query, body=value,
                traceparent=traceparent, wait=wait,
            )  # fmt: skip
        except ProblemError as error:
            return replies.problem(error)
        except KeyInvalid as error:
            return replies.problem(ProblemError("key_invalid", reading.sentence(error)))
        except BodyInvalid as error:
            return replies.problem(reading.body_problem(error))

    def _inline(self, params: Any, request: InlineRequest) -> tuple[ApplicationLoop, KeyedRequest | Reply, Preparing]:
        if request.get("body") is None:
            request["body"] = self.definition.written(params)
        return self.inline_of(self.request_or_problem(**self._known("inline", request)), params)

    def _known(self, method: str, request: Words) -> Words:
        known = ClientRequest.__annotations__
        if wrong := sorted(request.keys() - known.keys()):
            raise Misuse(f"{self.name}: {method}(): it does not know {wrong[0]}=. {nearest(wrong[0], known)}")
        if "key" not in request:
            raise Misuse(f"{self.name}: {method}(): it needs key=, the client's idempotency key (None: it sent none)")
        return request

    def _prepare(
        self, secret: bytes, tenant: str, key: str, params: Any, traceparent: str | None,
        ordering_key: str | None = None, asked_by: str | None = None,
    ) -> Prepared:  # fmt: skip
        return prepare(
            self._idem.operations, self._idem.providers, secret, tenant=tenant,
            operation=self.name, key=key, params=self.definition.written(params), traceparent=traceparent,
            ordering_key=ordering_key, asked_by=asked_by,
        )  # fmt: skip


def _json(raw: bytes) -> Any:
    """The value of JSON bytes. No bytes are None; what is not JSON, or cannot be held exactly, stays bytes."""
    if not raw:
        return None
    try:
        return canonical.parse(raw)
    except BodyInvalid:
        return raw
