"""The endpoints of a tenant: ask for an effect, look at it, cancel it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from starlette.requests import Request
from starlette.responses import Response

from idem.outbox.accept.known_keys import Retry
from idem.outbox.accept.prepare import Prepared
from idem.outbox.accept.status import AtRest, Status
from idem.outbox.api import answers, intents, queries, reading, suspicious, tenant_search
from idem.outbox.api.answers import AnswerContext
from idem.outbox.api.client_wait import wait_for
from idem.outbox.api.large_bodies import HEAVY
from idem.outbox.api.met_keys import MetKeys
from idem.outbox.api.request import RawRequest, RequestReader
from idem.outbox.api.responses import response
from idem.outbox.api.store import Store
from idem.outbox.api.waiting import Waiters
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.database.channel import ALL
from idem.outbox.database.notify import Nudge
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.decisions import (
    Accepted,
    Decision,
    Expired,
    InProgress,
    Limited,
    Mismatch,
    Replay,
    Retrying,
    Unknown,
)
from idem.outbox.http_server.problems import JSON, ProblemError
from idem.outbox.observe import telemetry
from idem.outbox.operator import actions
from idem.outbox.settle.expired_leases import sweep_of
from idem.outbox.tenants.authentication import Caller, Callers
from idem.outbox.tenants.limits import TenantCounter, TenantLimits
from idem.outbox.tenants.shares import RETRY_AFTER, UnderWay
from idem.outbox.values.errors import OperatorRefused
from idem.outbox.values.json_bytes import encoded


@dataclass(eq=False, repr=False)
class Service:
    """Everything behind `/v1`. Holds no state of a request."""

    catalogue: Catalogue
    settings: ApiSettings
    store: Store
    callers: Callers
    limits: TenantLimits
    waiters: Waiters
    under_way: UnderWay
    nudge: Nudge | None = None

    def __post_init__(self) -> None:
        self._asking = RequestReader(self.catalogue, self.settings, self.store)
        self._met = MetKeys()

    async def ask(self, request: Request) -> Response:
        """`POST /v1/intents/{operation}`"""
        caller = await self._caller(request)
        try:
            return await self._asked(request, caller, request.path_params["operation"])
        except ProblemError as error:
            if misuse := MISUSES.get(error.problem.code):
                self.limits.count(caller.tenant, misuse)
            raise

    async def _asked(self, request: Request, caller: Caller, name: str) -> Response:
        operation = self.catalogue.operations.get(name)
        gone: ProblemError | None = None
        if operation is None or operation.kind != "provider":
            # Inline and local operations are their application's own: no worker could make their call.
            gone = ProblemError("not_found", "No operation has this name.")
        said = await self._asking.read(request, caller, name, gone)
        try:
            decided, fingerprint = await self._decided(request, caller, name, said)
        finally:
            await said.forget()
        self._count(caller, name, said.key, decided)
        await self._sweep(caller.tenant, decided)
        status, waited, seconds = decided, None, reading.wait(request, self.settings.wait_cap)
        if seconds and isinstance(decided, Accepted | Retrying | InProgress | Unknown):
            place = (caller.tenant, name, said.key, fingerprint)
            status, waited = await wait_for(self.waiters, request, place, seconds), int(seconds)
        known = operation or self.catalogue.cautious(name, "").operation
        asked = AnswerContext(known, self.settings.profile, waited, caller.label)
        return response(answers.answer(asked, status, repeated=not isinstance(decided, Accepted | Retrying)))

    async def _decided(self, request: Request, caller: Caller, name: str, said: RawRequest) -> tuple[Status, str]:
        """The decision about a request, and the fingerprint of its key."""
        if said.refused is not None:
            return await self._recalled(request, caller, name, said, said.refused)
        if kind := suspicious.kind(said.key):
            telemetry.suspicious_key(kind)
            self.limits.count(caller.tenant, TenantCounter.SUSPICIOUS_KEY)
        place, operation = (caller.tenant, name, said.key), self.catalogue.operations[name]
        if place in self._met and (own := self._asking.fingerprint(request, caller, operation, said)) is not None:
            known = await self.store.retried((*place, own), operation)
            # What looks like other content may be the same by the rules of its time: that is seen below.
            if known is not None and not isinstance(known, Mismatch | Limited):
                return known, own
        try:
            prepared = await self._asking.prepared(request, caller, operation, said)
        except ProblemError as refused:
            if refused.problem.code not in ("params_invalid", "body_invalid"):
                raise
            return await self._recalled(request, caller, name, said, refused)
        may_create = self.limits.may_create(caller.tenant)
        decided: Decision | Limited | None = None
        try:
            decided = await self.store.decide(prepared, may_create=may_create is None)
            if isinstance(decided, Mismatch) and (composed := await self._as_stored(prepared, decided)) is not None:
                prepared = composed
                decided = await self.store.decide(prepared, may_create=may_create is None)
        finally:
            if may_create is None and not isinstance(decided, Accepted):
                self.limits.not_created(caller.tenant)
        if isinstance(decided, Limited):
            assert may_create is not None
            self._count(caller, name, said.key, decided)
            raise ProblemError("too_many_keys", may_create.text, retry_after=may_create.seconds)
        self._met.add(place)
        return decided, prepared.fingerprint

    @staticmethod
    async def _as_stored(prepared: Prepared, decided: Mismatch) -> Prepared | None:
        return await HEAVY.run(prepared.tenant, len(prepared.written), lambda: prepared.as_stored(decided))

    async def show(self, request: Request) -> Response:
        """`GET /v1/intents/{id}`"""
        caller = await self._caller(request)
        intent = _intent(request)
        found = await self._found(caller.tenant, intent)
        if found is None:
            raise _unknown_intent()
        return Response(encoded(found), media_type=JSON)

    async def list(self, request: Request) -> Response:
        """`GET /v1/intents`"""
        caller = await self._caller(request)
        query = queries.parameters(request, queries.LISTED)
        limit = queries.limit(query.get("limit"))
        state = queries.one_of("state", query.get("state"), intents.STATES)
        operation = queries.one_of("operation", query.get("operation"), sorted(self.catalogue.operations))
        key, before = queries.key(query.get("key"), operation), queries.intent("before", query.get("before"))
        wanted = queries.search(query)

        async def work(connection: AsyncConnection[Any]) -> tuple[Sequence[dict[str, Any]], str | None]:
            more: dict[str, Any] = {"state": state, "operation": operation, "before": before, "limit": limit}
            if wanted:
                return await tenant_search.intents(connection, caller.tenant, **wanted, **more)
            page = await intents.intents(connection, caller.tenant, key=key, **more)
            return page, page[-1]["id"] if len(page) == limit else None

        found, following = await self.store.run(work, caller.tenant)
        return Response(encoded({"intents": found, "next": following}), media_type=JSON)

    async def cancel(self, request: Request) -> Response:
        """`DELETE /v1/intents/{id}`"""
        caller = await self._caller(request)
        intent = _intent(request)

        async def work(connection: AsyncConnection[Any]) -> dict[str, Any] | None:
            if (found := await intents.intent(connection, caller.tenant, intent)) is None:
                return None
            if found["outcome"] != "cancelled":
                await actions.cancel(
                    connection, self.catalogue, intent,
                    by=f"token {caller.label}", reason="cancelled by the client", source="client",
                )  # fmt: skip
            return _cancelled(intent)

        try:
            done = await self.store.run(work, caller.tenant)
        except OperatorRefused:
            done = await self._cancelled_by_another(caller.tenant, intent)
        if done is None:
            raise _unknown_intent()
        return Response(encoded(done), media_type=JSON)

    async def _caller(self, request: Request) -> Caller:
        authorization = request.headers.getlist("authorization")
        caller = self.callers.remembered(authorization)
        if caller is None:
            caller = await self.store.guarded(self.callers.caller(authorization))
        if caller is None:
            raise ProblemError(
                "unauthorized", "Send a valid token: `Authorization: Bearer …`.",
                headers={"WWW-Authenticate": 'Bearer realm="idem"'},
            )  # fmt: skip
        self.limits.count(caller.tenant, TenantCounter.REQUESTS)
        wait = self.limits.admit(caller.tenant)
        if wait is None and not self.under_way.begin(caller.tenant):
            wait = RETRY_AFTER
        if wait is not None:
            self.limits.count(caller.tenant, TenantCounter.LIMITED)
            raise ProblemError(
                "too_many_requests", "Your account sends more requests than its limit allows.", retry_after=wait
            )
        return caller

    async def _recalled(
        self, request: Request, caller: Caller, name: str, said: RawRequest, refused: ProblemError
    ) -> tuple[Status, str]:
        """A request that is refused now may be the retry of one that was accepted before: then its key decides (P3).

        Raises `refused` where the key is new, and for a body that is no JSON.
        """
        retry = Retry(caller.tenant, name, said.key, None, query=reading.query(request), caller=caller.label)
        known = self.catalogue.operations.get(name)
        try:
            found = await self.store.recall(retry, known, lambda stored: self._asking.composed_as(stored, said, retry))
        except ProblemError as error:
            raise (refused if error.problem.code == "body_invalid" else error) from None
        if found is None:
            raise refused
        if isinstance(found.status, AtRest):
            raise answers.unserved(found.status.intent_id)
        return found.status, found.fingerprint

    async def _sweep(self, tenant: str, decided: Status | Limited) -> None:
        """End a claim whose lease has expired when a request meets it, so that the reconciler looks it up."""
        if isinstance(decided, Unknown) and decided.lease_over:
            intent = decided.intent_id
            await self.store.run(lambda line: sweep_of(line, self.catalogue, intent, by="api"), tenant)

    def _count(self, caller: Caller, name: str, key: str, decided: Status | Limited) -> None:
        if not isinstance(decided, AtRest):
            telemetry.accepted(caller.tenant, name, key, decided)
        if misuse := COUNTED.get(type(decided)):
            self.limits.count(caller.tenant, misuse)
        if isinstance(decided, Accepted):
            self.limits.created(caller.tenant)
        if self.nudge is not None and isinstance(decided, Accepted | Retrying):
            known = self.catalogue.operations.get(name)
            self.nudge.wake(ALL if known is None else known.work_for(decided.status))

    async def _found(self, tenant: str, intent: UUID) -> dict[str, Any] | None:
        return await self.store.run(lambda connection: intents.intent(connection, tenant, intent), tenant)

    async def _cancelled_by_another(self, tenant: str, intent: UUID) -> dict[str, Any] | None:
        found = await self._found(tenant, intent)
        if found is None or found["outcome"] == "cancelled":
            return found and _cancelled(intent)
        state = found["outcome"] or found["status"] or found["state"]
        raise ProblemError(
            "not_cancellable",
            f"It is {state}: only a request that was certainly not sent can be cancelled.",
            intent=intent,
        )


MISUSES = {
    "key_missing": TenantCounter.KEY_MISSING,
    "key_invalid": TenantCounter.KEY_INVALID,
    "body_invalid": TenantCounter.BODY_INVALID,
    "params_invalid": TenantCounter.PARAMS_INVALID,
}
"""What is counted of a request that is refused, by the code of its problem."""

COUNTED = {
    Accepted: TenantCounter.CREATED,
    Replay: TenantCounter.REPLAYED,
    Mismatch: TenantCounter.MISMATCH,
    Expired: TenantCounter.EXPIRED_REUSE,
    Limited: TenantCounter.LIMITED,
}


def _cancelled(intent: UUID) -> dict[str, Any]:
    return {"id": str(intent), "state": "completed", "outcome": "cancelled"}


def _intent(request: Request) -> UUID:
    try:
        return UUID(request.path_params["intent"])
    except ValueError:
        raise _unknown_intent() from None


def _unknown_intent() -> ProblemError:
    return ProblemError("not_found", "No intent has this id.")
