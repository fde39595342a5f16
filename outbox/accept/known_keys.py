"""Answers a known key by what it was accepted under, even if the configuration has changed (P3).

A request that the operation of today refuses (its params schema, a rule about its content, its request that cannot be
made, or no such operation any more) may be the retry of one that was accepted before. So who is about to refuse a
request asks here first whether its key is known.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from idem.outbox.accept import accept
from idem.outbox.accept.status import STATUS, AtRest, RequestIdentity, Status, columns, status_of
from idem.outbox.domain import fingerprints
from idem.outbox.domain.decisions import Decision
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.values.errors import IdemError, ParamsInvalid, Unrenderable, Unserved

NO_FINGERPRINT: Final = ""
"""The fingerprint of no request: with it a key that is known answers with its own."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The parts of a request that are known without its operation."""

    tenant: str
    operation: str
    key: str
    body: Any
    path: str | None = None
    query: str | Mapping[str, Any] | None = None
    raw: str | None = None
    """The fingerprint of a body that is not JSON; `body` is None then."""
    caller: str | None = None
    """The label of the token that it came with."""

    def identity(self, fingerprint: str) -> RequestIdentity:
        """Its tenant, operation, key and fingerprint."""
        return self.tenant, self.operation, self.key, fingerprint

    def composed_as(self, stored: str) -> str:
        """Its fingerprint, composed as a stored one is."""
        if self.raw is not None:
            return self.raw
        return fingerprints.composed_as(stored, self.operation, self.body, self.path, self.query, caller=self.caller)


@dataclass(frozen=True, slots=True)
class Recalled:
    """The status of the key of a retry, and the retry's fingerprint, composed like that of the key."""

    status: Status
    fingerprint: str


def recall(
    row: Callable[[str, Mapping[str, Any]], Any], retry: Retry, operation: OperationSpec | None = None
) -> Recalled | None:
    """The status of the key of this request; None: the key is new. The database counts it.

    `row` gives one row of a statement, with its columns as attributes. `operation` as it is configured now: where a
    worker makes its call, a key at rest goes back to work with its frozen request.
    """

    async def read(statement: str, values: Mapping[str, Any]) -> Any:
        return row(statement, values)

    try:
        recall_async(read, retry, operation).send(None)
    except StopIteration as over:
        recalled: Recalled | None = over.value
        return recalled
    raise AssertionError("nothing here waits")


# Never a new key: it is known, or has just been deleted.
DECIDE: Final = f"""
SELECT {accept.DECIDED}
  FROM idem.reserve(
           CAST(:tenant AS text), CAST(:operation AS text), CAST(:key AS text), CAST(:fingerprint AS text),
           interval '0', make_interval(secs => CAST(:patience AS double precision)), false, false,
           CAST(:provider AS text), CAST(:account AS text), CAST(:count AS boolean), CAST(:served AS jsonb)) AS d
"""  # noqa: S608


async def recall_async(
    row: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
    retry: Retry,
    operation: OperationSpec | None = None,
    composed: Callable[[str], Awaitable[str]] | None = None,
    *,
    count: bool = True,
) -> Recalled | None:
    """The same, for a reader that is waited for. `composed` gives the fingerprint of the request, composed as a stored
    one is, instead of `retry` itself in this thread. Without `count` the caller counts the decision itself."""
    found = await row(STATUS, columns([retry.identity(NO_FINGERPRINT)]))
    if found is None:
        return None
    stored = found.fingerprint
    fingerprint = retry.composed_as(stored) if composed is None else await composed(stored)
    found = await row(DECIDE, parameters(retry.identity(fingerprint), operation, count=count))
    return None if found.decision == "limited" else Recalled(status_of(found), fingerprint)


def parameters(request: RequestIdentity, operation: OperationSpec | None, *, count: bool) -> dict[str, Any]:
    """The parameters of `DECIDE`."""
    tenant, name, key, fingerprint = request
    called = operation if operation is not None and operation.kind == "provider" else None
    return {
        "tenant": tenant, "operation": name, "key": key, "fingerprint": fingerprint,
        "patience": called.patience if called else 0.0, "provider": called.provider if called else None,
        "account": called.account if called else None, "count": count, "served": called.served if called else None,
    }  # fmt: skip


def decision(found: Recalled | None, refused: IdemError, *, inline: bool = False) -> Decision:
    """The decision about a request that is refused now. Raises `refused` for a new key.

    For one at rest it raises Unserved; at the door of `inline` calls, whose caller would make the call, the params that
    are `refused`. Nothing happened, and nothing will.
    """
    if found is None:
        raise refused
    if isinstance(found.status, AtRest):
        raise (
            refused
            if inline and isinstance(refused, ParamsInvalid | Unrenderable)
            else Unserved(found.status.intent_id)
        )
    return found.status
