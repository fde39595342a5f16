"""What a client's request says, read and checked against its operation: everything that needs no decision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request

from idem.outbox import telemetry
from idem.outbox.catalogue import Catalogue
from idem.outbox.errors import BodyInvalid, ParamsInvalid, Unrenderable
from idem.outbox.http import reading, suspicious
from idem.outbox.http.callers import Caller
from idem.outbox.http.deciding import Store
from idem.outbox.http.heavy import HEAVY
from idem.outbox.http.limits import Limits, Misuse
from idem.outbox.http.problems import ProblemError
from idem.outbox.http.settings import ApiSettings
from idem.outbox.operation import Operation
from idem.outbox.prepare import Prepared, prepare
from idem.outbox.recalling import Retry

MISUSES = {
    "key_missing": Misuse.KEY_MISSING,
    "key_invalid": Misuse.KEY_INVALID,
    "body_invalid": Misuse.BODY_INVALID,
    "params_invalid": Misuse.PARAMS_INVALID,
}
"""What is counted of a request that is refused, by the code of its problem."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a request says: its key, and the bytes of its body. What they parse to may be a thousand times as much, and
    lives in a turn of `HEAVY` alone."""

    key: str
    body: bytes


class Asking:
    """Reads requests for effects. Holds no state of a request."""

    def __init__(self, catalogue: Catalogue, settings: ApiSettings, store: Store, limits: Limits) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._store = store
        self._limits = limits

    async def said(self, request: Request, caller: Caller) -> Said:
        """Key and body of a request. Raises ProblemError."""
        with self._counted(caller):
            reading.check_media_type(request)
            key = reading.key(request, strict=self._settings.strict_keys, least=self._settings.min_key_length)
            if kind := suspicious.kind(key):
                telemetry.suspicious_key(kind)
                self._limits.count(caller.tenant, Misuse.SUSPICIOUS_KEY)
            return Said(key, await self._body(request))

    async def prepared(self, request: Request, caller: Caller, operation: Operation, said: Said) -> Prepared:
        """All that can be said about a request without the database. Raises ProblemError."""
        secret, query, trace = await self._store.secret(), reading.query(request), reading.trace(request)
        try:
            with self._counted(caller):
                return await HEAVY.run(caller.tenant, len(said.body), lambda: prepare(
                    self._catalogue.operations, self._catalogue.providers, secret, tenant=caller.tenant,
                    operation=operation.name, key=said.key, params=self._params(said), query=query, traceparent=trace,
                ))  # fmt: skip
        except BodyInvalid as error:
            raise reading.body_problem(error) from None
        except ParamsInvalid as error:
            raise ProblemError("params_invalid", "The operation refuses them.", errors=error.problems) from None
        except Unrenderable as error:
            if error.__cause__ is not None:
                telemetry.broken("api", error.__cause__, f"the request of {operation.name}")
            raise ProblemError("params_invalid", reading.sentence(error), errors=[("", str(error))]) from None

    async def is_of(self, fingerprint: str, said: Said, retry: Retry) -> bool:
        """Whether a request is the one of a stored fingerprint. Raises ProblemError (`body_invalid`)."""

        def compared() -> bool:
            return replace(retry, body=self._params(said)).is_of(fingerprint)

        return await HEAVY.run(retry.tenant, len(said.body), compared)

    def _params(self, said: Said) -> Any:
        return reading.params(said.body, self._settings.max_values)

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        try:
            yield
        except ProblemError as error:
            if misuse := MISUSES.get(error.problem.code):
                self._limits.count(caller.tenant, misuse)
            raise

    async def _body(self, request: Request) -> bytes:
        seconds = reading.BODY_TIME
        late = ProblemError(
            "body_invalid", f"It did not arrive whole within {seconds:.0f} seconds.", headers={"Connection": "close"}
        )
        return await reading.body(request, self._settings.max_body, seconds, late)
