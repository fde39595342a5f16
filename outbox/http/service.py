"""The endpoints of a tenant: ask for an effect, look at it, cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from starlette.requests import Request
from starlette.responses import Response

from idem.outbox import operator, telemetry
from idem.outbox.catalogue import Catalogue
from idem.outbox.decisions import Accepted, Decision, Expired, InProgress, Limited, Mismatch, Replay, Retrying, Unknown
from idem.outbox.ends import End
from idem.outbox.errors import BodyInvalid, ParamsInvalid, Refusal, Unrenderable
from idem.outbox.http import answers, ledger, queries, reading, searching, suspicious
from idem.outbox.http.answers import Asked
from idem.outbox.http.callers import Caller, Callers
from idem.outbox.http.connections import ENDED
from idem.outbox.http.deciding import Store
from idem.outbox.http.heavy import HEAVY
from idem.outbox.http.limits import Limits, Misuse
from idem.outbox.http.problems import ProblemError, encoded
from idem.outbox.http.responses import response
from idem.outbox.http.settings import ApiSettings
from idem.outbox.http.waiting import Waiters
from idem.outbox.operation import Operation
from idem.outbox.prepare import Prepared, prepare
from idem.outbox.states import KeyState
from idem.outbox.wakeup import Nudge


class Service:
    """Everything behind `/v1`. Holds no state of a request."""

    def __init__(
        self,
        catalogue: Catalogue,
        settings: ApiSettings,
        store: Store,
        callers: Callers,
        limits: Limits,
        waiters: Waiters,
        nudge: Nudge | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._store = store
        self._callers = callers
        self._limits = limits
        self._waiters = waiters
        self._nudge = nudge

    async def ask(self, request: Request) -> Response:
        """`POST /v1/intents/{operation}`"""
        caller = await self._caller(request)
        operation = self._operation(request.path_params["operation"])
        wish = await self._read(request, caller, operation)
        seconds = reading.wait(request, self._settings.wait_cap)
        may_create = self._limits.may_create(caller.tenant)
        decided: Decision | Limited | None = None
        try:
            decided = await self._store.decide(wish, may_create=may_create is None)
        finally:
            if may_create is None and not isinstance(decided, Accepted):
                self._limits.not_created(caller.tenant)
        self._seen(caller, wish, decided)
        if isinstance(decided, Limited):
            assert may_create is not None
            raise ProblemError("too_many_keys", may_create.text, retry_after=may_create.seconds)
        end: End = decided
        waited = None
        if seconds and isinstance(decided, Accepted | Retrying | InProgress | Unknown):
            end, waited = await self._wait(request, wish, seconds), int(seconds)
        asked = Asked(operation, self._settings.profile, waited)
        return response(answers.answer(asked, end, repeated=not isinstance(decided, Accepted | Retrying)))

    async def show(self, request: Request) -> Response:
        """`GET /v1/intents/{id}`"""
        caller = await self._caller(request)
        intent = _intent(request)
        found = await self._store.run(lambda connection: ledger.intent(connection, caller.tenant, intent))
        if found is None:
            raise _unknown_intent()
        return Response(encoded(found), media_type=answers.JSON)

    async def list(self, request: Request) -> Response:
        """`GET /v1/intents`"""
        caller = await self._caller(request)
        query = queries.parameters(request, queries.LISTED)
        limit = queries.limit(query.get("limit"))
        state = queries.one_of("state", query.get("state"), [each for each in KeyState if each != KeyState.EXPIRED])
        operation = queries.one_of("operation", query.get("operation"), sorted(self._catalogue.operations))
        key, before = queries.key(query.get("key"), operation), queries.intent("before", query.get("before"))
        wanted = queries.search(query)

        async def work(connection: AsyncConnection[Any]) -> Sequence[dict[str, Any]]:
            more: dict[str, Any] = {"state": state, "operation": operation, "before": before, "limit": limit}
            if wanted:
                return await searching.intents(connection, caller.tenant, **wanted, **more)
            return await ledger.intents(connection, caller.tenant, key=key, **more)

        found = await self._store.run(work)
        following = found[-1]["id"] if len(found) == limit else None
        return Response(encoded({"intents": found, "next": following}), media_type=answers.JSON)

    async def cancel(self, request: Request) -> Response:
        """`DELETE /v1/intents/{id}`"""
        caller = await self._caller(request)
        intent = _intent(request)

        async def work(connection: AsyncConnection[Any]) -> dict[str, Any] | None:
            if (found := await ledger.intent(connection, caller.tenant, intent)) is None:
                return None
            if found["outcome"] != "cancelled":
                await operator.cancel(
                    connection, self._catalogue, intent,
                    by=f"token {caller.label}", reason="cancelled by its client", source="client",
                )  # fmt: skip
            return _cancelled(intent)

        try:
            done = await self._store.run(work)
        except Refusal:
            done = await self._cancelled_by_another(caller.tenant, intent)
        if done is None:
            raise _unknown_intent()
        return Response(encoded(done), media_type=answers.JSON)

    async def _caller(self, request: Request) -> Caller:
        caller = await self._store.guarded(self._callers.caller(request.headers.getlist("authorization")))
        if caller is None:
            raise ProblemError(
                "unauthorized", "A valid token is needed: `Authorization: Bearer …`.",
                headers={"WWW-Authenticate": 'Bearer realm="idem"'},
            )  # fmt: skip
        self._limits.count(caller.tenant, Misuse.REQUESTS)
        wait = self._limits.admit(caller.tenant)
        if wait is not None:
            self._limits.count(caller.tenant, Misuse.LIMITED)
            raise ProblemError("too_many_requests", "Your account sends more requests than it may.", retry_after=wait)
        return caller

    def _operation(self, name: str) -> Operation:
        known = self._catalogue.operations.get(name)
        if known is None or known.kind != "provider":
            # Inline and local operations are their application's own: no worker could make their call.
            raise ProblemError("not_found", "There is no such operation.")
        return known

    async def _read(self, request: Request, caller: Caller, operation: Operation) -> Prepared:
        """All that can be said about a request without the database."""
        try:
            reading.check_media_type(request)
            key = reading.key(request, strict=self._settings.strict_keys, least=self._settings.min_key_length)
            if kind := suspicious.kind(key):
                telemetry.suspicious_key(kind)
                self._limits.count(caller.tenant, Misuse.SUSPICIOUS_KEY)
            raw, secret, values = await self._body(request), await self._store.secret(), self._settings.max_values
            query, trace = reading.query(request), reading.trace(request)
            return await HEAVY.run(caller.tenant, len(raw), lambda: prepare(
                self._catalogue.operations, self._catalogue.providers, secret, tenant=caller.tenant,
                operation=operation.name, key=key, params=reading.params(raw, values), query=query, traceparent=trace,
            ))  # fmt: skip
        except ProblemError as error:
            if misuse := MISUSES.get(error.problem.code):
                self._limits.count(caller.tenant, misuse)
            raise
        except BodyInvalid as error:
            self._limits.count(caller.tenant, Misuse.BODY_INVALID)
            raise reading.body_problem(error) from None
        except ParamsInvalid as error:
            self._limits.count(caller.tenant, Misuse.PARAMS_INVALID)
            raise ProblemError("params_invalid", "The operation refuses them.", errors=error.problems) from None
        except Unrenderable as error:
            if error.__cause__ is not None:
                telemetry.broken("api", error.__cause__, f"the request of {operation.name}")
            self._limits.count(caller.tenant, Misuse.PARAMS_INVALID)
            raise ProblemError("params_invalid", reading.sentence(error), errors=[("", str(error))]) from None

    async def _body(self, request: Request) -> bytes:
        seconds = reading.BODY_TIME
        late = ProblemError(
            "body_invalid", f"It did not arrive whole within {seconds:.0f} seconds.", headers={"Connection": "close"}
        )
        return await reading.body(request, self._settings.max_body, seconds, late)

    def _seen(self, caller: Caller, wish: Prepared, decided: Decision | Limited) -> None:
        telemetry.accepted(wish.tenant, wish.operation.name, wish.key, decided)
        if misuse := COUNTED.get(type(decided)):
            self._limits.count(caller.tenant, misuse)
        if isinstance(decided, Accepted):
            self._limits.created(caller.tenant)
        if self._nudge is not None and isinstance(decided, Accepted | Retrying):
            self._nudge.wake()

    async def _wait(self, request: Request, wish: Prepared, seconds: float) -> End:
        """Until the end, or the end of the client's patience. A client that goes away waits for nothing; one that has
        ended its side may be gone, or may read: it hears at once how things stand."""
        about = (wish.tenant, wish.operation.name, wish.key, wish.fingerprint)
        waiting = asyncio.create_task(self._waiters.wait(about, seconds))
        gone = asyncio.create_task(_gone(request))
        ended = asyncio.create_task(_ended(request))
        try:
            await asyncio.wait({waiting, gone, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and ended.done():
                waiting.cancel()
                waiting = asyncio.create_task(self._waiters.wait(about, 0.0))
                await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise ClientGone
            return waiting.result()
        finally:
            gone.cancel()
            ended.cancel()
            waiting.cancel()

    async def _cancelled_by_another(self, tenant: str, intent: UUID) -> dict[str, Any] | None:
        found = await self._store.run(lambda connection: ledger.intent(connection, tenant, intent))
        if found is None or found["outcome"] == "cancelled":
            return found and _cancelled(intent)
        stands = found["outcome"] or found["step"] or found["state"]
        raise ProblemError(
            "not_cancellable", f"It is {stands}: only what was certainly not sent can be cancelled.", intent=intent
        )


class ClientGone(Exception):
    """Nobody is there any more to be answered; what was accepted goes on."""


COUNTED = {
    Accepted: Misuse.CREATED,
    Replay: Misuse.REPLAYED,
    Mismatch: Misuse.MISMATCH,
    Expired: Misuse.EXPIRED_REUSE,
    Limited: Misuse.LIMITED,
}
MISUSES = {
    "key_missing": Misuse.KEY_MISSING,
    "key_invalid": Misuse.KEY_INVALID,
    "body_invalid": Misuse.BODY_INVALID,
}


def _cancelled(intent: UUID) -> dict[str, Any]:
    return {"id": str(intent), "state": "completed", "outcome": "cancelled"}


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _ended(request: Request) -> None:
    event: asyncio.Event = getattr(request.state, ENDED, None) or asyncio.Event()
    await event.wait()


def _intent(request: Request) -> UUID:
    try:
        return UUID(request.path_params["intent"])
    except ValueError:
        raise _unknown_intent() from None


def _unknown_intent() -> ProblemError:
    return ProblemError("not_found", "There is no such intent.")
