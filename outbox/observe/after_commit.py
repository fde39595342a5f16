"""Emits each change of state once after its commit: the log line `transition` and its metrics.

The statement that writes a change returns what is emitted, so idem asks for nothing twice. The evidence row is the
record: if the answer to a COMMIT is lost, only the evidence shows the change.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection

from idem.outbox.domain.outbox_row import OutboxRow, Source
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outbox.observe import metrics
from idem.outbox.observe.logs import key_hash, log, shows
from idem.outbox.observe.series import of

SOURCES = frozenset(get_args(Source))
"""A name that is not here is counted as `other`."""
ASKED = frozenset({OutboxStatus.UNKNOWN, OutboxStatus.AWAITING})


@dataclass(frozen=True, slots=True)
class Moved:
    """One change of state as it was written. `to_status` None: the row has left. `waited`: seconds in `from_status`.

    `key` is the client's own; it is only ever told as a hash.
    """

    tenant: str
    operation: str
    key: str
    intent: UUID
    attempt: int | None
    source: str
    kind: str
    from_state: str | None
    to_state: str | None
    from_status: str | None = None
    to_status: str | None = None
    provider: str | None = None
    account: str | None = None
    seen: str | None = None
    waited: float = 0.0
    letters: tuple[str, ...] = ()
    traceparent: str | None = None


Emit: TypeAlias = Callable[[], None]
_open: WeakKeyDictionary[AsyncConnection[Any], list[Emit]] = WeakKeyDictionary()


@asynccontextmanager
async def transaction(connection: AsyncConnection[Any]) -> AsyncIterator[None]:
    """A transaction or savepoint whose changes are emitted when the outermost transaction has committed, or never."""
    outer, own = _open.get(connection), list[Emit]()
    _open[connection] = own
    try:
        async with connection.transaction():
            yield
    finally:
        if outer is None:
            _open.pop(connection, None)
        else:
            _open[connection] = outer
    if outer is not None:
        outer += own
    else:
        for each in own:
            each()


def emit(connection: AsyncConnection[Any], what: Emit) -> None:
    """Emit a written change: now, or at the end of the connection's `transaction`."""
    waiting = _open.get(connection)
    if waiting is None:
        what()
    else:
        waiting.append(what)


def moved(what: Moved) -> None:
    """A change of state of a key, a row or both, after its commit."""
    source = what.source if what.source in SOURCES else "other"
    to_status = what.to_status or ("gone" if what.from_status else None)
    if to_status != what.from_status and to_status is not None:
        of(metrics.TRANSITIONS, source, what.from_status or "none", to_status).inc()
        _count_asking(what, source, to_status)
    for reason in what.letters:
        dead_letter(what.intent, reason)
    if (what.from_state, what.from_status) != (what.to_state, to_status) and shows(logging.INFO):
        _transition(what, to_status)


def _transition(what: Moved, to_status: str | None) -> None:
    log.info(
        "transition", tenant=what.tenant, operation=what.operation, key_hash=key_hash(what.key),
        intent=str(what.intent), attempt=what.attempt, source=what.source, kind=what.kind,
        from_state=_text(what.from_state), to_state=_text(what.to_state),
        from_status=_text(what.from_status), to_status=_text(to_status),
        **({} if what.traceparent is None else {"traceparent": what.traceparent}),
    )  # fmt: skip


def completed(rows: Sequence[tuple[Any, ...]]) -> None:
    """Calls that have succeeded, as `idem.outbox.settle.commonest` has written them, after its commit."""
    if not rows:
        return
    of(metrics.TRANSITIONS, "worker", "claimed", "gone").inc(len(rows))
    if not shows(logging.INFO):
        return
    for _, tenant, operation, key, intent, attempt, provider, account, waited, traceparent in rows:
        _transition(
            Moved(
                tenant=tenant, operation=operation, key=key, intent=intent, attempt=attempt, source="worker",
                kind="report", from_state="in_progress", to_state="completed", from_status="claimed", provider=provider,
                account=account, seen="succeeded", waited=waited, traceparent=traceparent,
            ), "gone",
        )  # fmt: skip


def begun(tenant: str, key: str, row: OutboxRow, *, again: bool) -> None:
    """The beginning of an inline run, after its commit; `again`: its client took up a call that was at rest."""
    state, status = (KeyState.FAILED_RETRYABLE, OutboxStatus.HELD) if again else (None, None)
    moved(
        Moved(
            tenant=tenant, operation=row.operation, key=key, intent=row.intent_id, attempt=row.attempt,
            source="accept", kind="retried" if again else "accepted", from_state=state, to_state=row.state,
            from_status=status, to_status=row.status, provider=row.provider, account=row.account,
        )
    )  # fmt: skip


def _text(word: str | None) -> str | None:
    # A member of an enumeration is told as its value by every renderer.
    return None if word is None else str(word)


def _count_asking(what: Moved, source: str, to_status: str) -> None:
    lane = (what.provider or "", what.account or "")
    if what.from_status not in ASKED:
        if to_status in ASKED:
            of(metrics.RECONCILE, *lane, "scheduled").inc()
        return
    how = _how(source, what.kind, what.seen)
    if what.from_status == OutboxStatus.UNKNOWN:
        of(metrics.SETTLE_SECONDS, how).observe(what.waited)
    of(metrics.SETTLED, how, str(what.to_state)).inc()
    if to_status not in ASKED:
        of(metrics.RECONCILE, *lane, "resolved").inc()


def _how(source: str, kind: str, seen: str | None) -> str:
    if source == "reconciler":
        return "absent" if seen == "absent" else "replay" if kind == "replay" else "lookup"
    return "late_result" if source in ("worker", "inline") else source


def dead_letter(intent: UUID | None, reason: str) -> None:
    """A dead letter was opened."""
    of(metrics.DEAD_LETTERS, reason).inc()
    log.warning("dead_letter", intent=str(intent) if intent else None, reason=reason)
