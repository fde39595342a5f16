"""Reads a client's request and checks it against its operation, before any decision."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from starlette.requests import Request

from idem.outbox.accept.known_keys import Retry
from idem.outbox.accept.prepare import Prepared, fingerprint, prepare
from idem.outbox.api import reading
from idem.outbox.api.large_bodies import HEAVY, LIGHT
from idem.outbox.api.store import Store
from idem.outbox.calls.user_code import Turns
from idem.outbox.config.http_settings import MOST_VALUES, ApiSettings
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.http_server.problems import ProblemError
from idem.outbox.observe import telemetry
from idem.outbox.tenants.authentication import Caller
from idem.outbox.tenants.keyed_lock import KeyedLock
from idem.outbox.values import canonical
from idem.outbox.values.canonical import MAX_BYTES
from idem.outbox.values.errors import BodyInvalid, ParamsInvalid, Unrenderable
from idem.outbox.values.threads import whole

TIME_LIMIT: Final = 10.0
"""Seconds that the code of an operation in Python (its model, `request`, `label`, `approve`) may take for one request,
and that it may wait for a turn."""


@dataclass(slots=True)
class RawRequest:
    """The content of a request: its key and the bytes of its body.

    The parsed body may be a thousand times as large, so it exists only within a turn of `HEAVY`. `refused`: the problem
    for a new key; a known key decides by itself.
    """

    key: str
    body: bytes = b""
    refused: ProblemError | None = None
    turn: AsyncExitStack | None = None
    """The tenant's turn for a large body, which lasts until the body is forgotten."""

    async def forget(self) -> None:
        """Keep the body no longer: who waits for an end afterwards needs it no more."""
        self.body = b""
        if self.turn is not None:
            await self.turn.aclose()


@dataclass(eq=False, repr=False)
class RequestReader:
    """Reads requests for effects. Holds no state of a request."""

    catalogue: Catalogue
    settings: ApiSettings
    store: Store

    def __post_init__(self) -> None:
        self._large = KeyedLock()
        self._turns = Turns(limit=TIME_LIMIT, patience=TIME_LIMIT)

    async def read(self, request: Request, caller: Caller, name: str, gone: ProblemError | None) -> RawRequest:
        """Read the key and the body of a request to the operation of this name; to be forgotten. Raises ProblemError.

        The present configuration applies to new keys only, so that a known key keeps its answer. `gone`: the problem
        for a new key where there is no such operation. For a known key idem reads a body of any size that was ever
        allowed: one at a time for each tenant, until it is forgotten.
        """
        refused = gone or _problem(lambda: reading.check_media_type(request))
        try:
            said = RawRequest(reading.key(request))
        except ProblemError as error:
            raise (refused or error) from None
        said.refused = refused or _problem(lambda: reading.check_key(
            request, said.key, strict=self.settings.strict_keys, least=self.settings.min_key_length
        ))  # fmt: skip
        if said.refused is not None and not await self.store.knows(caller.tenant, name, said.key):
            raise said.refused

        async def more() -> int:
            most = self.settings.max_body
            if said.refused is None:
                if not await self.store.knows(caller.tenant, name, said.key):
                    return most
                said.refused = reading.too_large(most)
            said.turn = AsyncExitStack()
            await said.turn.enter_async_context(self._large.holding(caller.tenant))
            return MAX_BYTES

        try:
            said.body = await self._body(request, more)
        except BaseException:
            await said.forget()
            raise
        return said

    async def prepared(self, request: Request, caller: Caller, operation: OperationSpec, said: RawRequest) -> Prepared:
        """All that can be said about a request without the database. Raises ProblemError."""
        secret, query, trace = await self.store.secret(), reading.query(request), reading.trace(request)
        values = self.settings.max_values

        def made() -> Prepared:
            return prepare(
                self.catalogue.operations, self.catalogue.providers, secret, tenant=caller.tenant,
                operation=operation.name, key=said.key, params=reading.params(said.body, values), query=query,
                traceparent=trace, caller=caller.label,
            )  # fmt: skip

        try:
            if operation.templated:
                return await HEAVY.run(caller.tenant, len(said.body), made)
            return await self._turns.run(operation.name, partial(whole, made))
        except TimeoutError as error:
            telemetry.broken("api", error, f"the code of {operation.name}, which took longer than {TIME_LIMIT:g} s")
            raise ProblemError(
                "internal_error", "The operation's own code did not answer in time. Nothing was accepted."
            ) from None
        except BodyInvalid as error:
            raise reading.body_problem(error) from None
        except ParamsInvalid as error:
            raise ProblemError("params_invalid", "The operation refuses the params.", errors=error.problems) from None
        except Unrenderable as error:
            if error.__cause__ is not None:
                telemetry.broken("api", error.__cause__, f"the request of {operation.name}")
            raise ProblemError("params_invalid", reading.sentence(error), errors=[("", str(error))]) from None

    def fingerprint(self, request: Request, caller: Caller, operation: OperationSpec, said: RawRequest) -> str | None:
        """The fingerprint of a request, and nothing else of it; None: its body is none, or no small one."""
        query, values = reading.query(request), self.settings.max_values

        def made() -> str:
            params = canonical.parse(said.body, values=values)
            return fingerprint(operation, params, canonical.plain(params), query, caller.label)

        try:
            return whole(made) if len(said.body) <= LIGHT else None
        except BodyInvalid:
            return None

    async def composed_as(self, stored: str, said: RawRequest, retry: Retry) -> str:
        """The fingerprint of a request, composed as a stored one is. Raises ProblemError (`body_invalid`)."""

        def composed() -> str:
            return replace(retry, body=reading.params(said.body, MOST_VALUES)).composed_as(stored)

        return await HEAVY.run(retry.tenant, len(said.body), composed)

    async def _body(self, request: Request, more: Callable[[], Awaitable[int]]) -> bytes:
        seconds = reading.BODY_TIME
        late = ProblemError(
            "body_invalid",
            f"The body did not arrive completely within {seconds:.0f} seconds.",
            headers={"Connection": "close"},
        )
        return await reading.body(request, self.settings.max_body, seconds, late, more)


def _problem(check: Callable[[], None]) -> ProblemError | None:
    try:
        check()
    except ProblemError as error:
        return error
    return None
