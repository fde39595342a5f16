"""A key that is known already is answered by what it was accepted under, whatever the configuration says now (P3).

A request that the operation of today refuses (its params schema, a rule about its content, its request that cannot be
made, or no such operation any more) may be the retry of one that was accepted before. So who is about to refuse a
request asks here first whether its key is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from idem.outbox import accept, fingerprints
from idem.outbox.decisions import Decision, Limited, Mismatch
from idem.outbox.ends import STANDS, AtRest, End, Wish, columns, end
from idem.outbox.errors import IdemError
from idem.outbox.operation import Operation

NO_FINGERPRINT: Final = ""
"""The fingerprint of no request: with it a key that is known answers with its own."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A request as far as it is known without its operation."""

    tenant: str
    operation: str
    key: str
    body: Any
    path: str | None = None
    query: str | Mapping[str, Any] | None = None
    raw: str | None = None
    """The fingerprint of a body that is no JSON; `body` is None then."""
    caller: str | None = None
    """The label of the token that it came with."""

    def place(self, fingerprint: str) -> Wish:
        """Where it stands in the tables."""
        return self.tenant, self.operation, self.key, fingerprint

    def is_of(self, fingerprint: str) -> bool:
        """Whether it is the request of a stored fingerprint."""
        if self.raw is not None:
            return self.raw == fingerprint
        return fingerprints.is_of(fingerprint, self.operation, self.body, self.path, self.query, caller=self.caller)


@dataclass(frozen=True, slots=True)
class Recalled:
    """How the key of a retry stands, and the fingerprint that it was accepted with."""

    end: End
    fingerprint: str


def recall(
    row: Callable[[str, Mapping[str, Any]], Any], retry: Retry, operation: Operation | None = None
) -> Recalled | None:
    """How the key of this request stands, None: it is not known.

    `row` gives one row of a statement, with its columns as attributes. `operation` as it is configured now: a worker
    makes its call, so a key at rest goes back to work with its frozen request.
    """
    steps = _steps(retry, operation)
    found: Any = None
    try:
        while True:
            wanted = steps.send(found)
            found = retry.is_of(wanted) if isinstance(wanted, str) else row(*wanted)
    except StopIteration as over:
        recalled: Recalled | None = over.value
        return recalled


async def recall_async(
    row: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
    retry: Retry,
    operation: Operation | None = None,
    is_of: Callable[[str], Awaitable[bool]] | None = None,
) -> Recalled | None:
    """The same, for a reader that is waited for. `is_of` compares the request with a stored fingerprint, instead of
    `retry` itself in this thread."""
    steps = _steps(retry, operation)
    found: Any = None
    while True:
        try:
            wanted = steps.send(found)
        except StopIteration as over:
            recalled: Recalled | None = over.value
            return recalled
        if not isinstance(wanted, str):
            found = await row(*wanted)
        else:
            found = retry.is_of(wanted) if is_of is None else await is_of(wanted)


# Never a new key: it is known, or the tenant may not create one.
TAKE_UP: Final = f"""
SELECT {accept.DECIDED}
  FROM idem.reserve(
           CAST(:tenant AS text), CAST(:operation AS text), CAST(:key AS text), CAST(:fingerprint AS text),
           interval '0', make_interval(secs => CAST(:patience AS double precision)), false, false) AS d
"""  # noqa: S608


Wanted: TypeAlias = tuple[str, Mapping[str, Any]] | str
"""A statement of which one row is wanted, or a stored fingerprint that the request is to be compared with."""


def _steps(retry: Retry, operation: Operation | None) -> Generator[Wanted, Any, Recalled | None]:
    found = yield STANDS, columns([retry.place(NO_FINGERPRINT)])
    first = None if found is None else end(found)
    if not isinstance(first, Mismatch):
        return None
    if not (yield first.fingerprint):
        return Recalled(first, first.fingerprint)
    found = yield STANDS, columns([retry.place(first.fingerprint)])
    if found is None:
        return None
    again = end(found)
    if isinstance(again, AtRest) and operation is not None and operation.kind == "provider":
        found = yield (
            TAKE_UP,
            {
                "tenant": retry.tenant, "operation": retry.operation, "key": retry.key,
                "fingerprint": first.fingerprint, "patience": operation.patience,
            },
        )  # fmt: skip
        decided = accept.decision(found)
        again = again if isinstance(decided, Limited) else decided
    return Recalled(again, first.fingerprint)


def decision(found: Recalled | None, refused: IdemError) -> Decision:
    """What accept decides about a request that is refused now. Raises `refused` for a new key, and for one at rest that
    no worker can take up: nothing happened, and nothing will."""
    if found is None or isinstance(found.end, AtRest):
        raise refused
    return found.end
