"""Events: one function each, a log line, a metric or both. `after_commit` and `daemon_events` have the others.

No bodies, no credentials, no idempotency keys: rows are named by their intent, keys by a hash. Metrics carry no
tenant and no id. The line of a change of state is `transition` (`after_commit.moved`).
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from idem.outbox.domain import decisions
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outbox.observe import metrics
from idem.outbox.observe.after_commit import Moved, moved
from idem.outbox.observe.logs import error_text, log, shows
from idem.outbox.observe.logs import set_up as set_up
from idem.outbox.observe.series import of

DECISIONS: Final[Mapping[type, str]] = {
    decisions.Accepted: "accepted",
    decisions.Retrying: "retrying",
    decisions.Replay: "replay",
    decisions.InProgress: "in_progress",
    decisions.Unknown: "unknown",
    decisions.NeedsOperator: "needs_operator",
    decisions.Mismatch: "mismatch",
    decisions.Expired: "expired",
    decisions.Limited: "limited",
}
"""The word for each decision in metrics; a call that is awaiting is `awaiting`."""
METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"})


def decisions_counted(operation: str, decision: str, number: int) -> None:
    """Count what accept decided through the library, inline or by SQL, since the last count."""
    of(metrics.ACCEPTS, operation, decision).inc(number)
    if decision == "expired":
        of(metrics.KEYS_REUSED, operation).inc(number)


def accepted(
    tenant: str, operation: str, key: str, decision: decisions.Decision | decisions.Limited, *, counts: bool = True
) -> None:
    """Count what accept decided, after its commit. Without `counts` the database has counted it for the sweeper."""
    if counts:
        of(metrics.ACCEPTS, operation, _decided(decision)).inc()
    match decision:
        case decisions.Accepted(intent_id=intent, status=status):
            to = (None, KeyState.IN_PROGRESS, None, status)
            moved(Moved(tenant, operation, key, intent, 0, "accept", "accepted", *to))
        case decisions.Retrying(intent, status):
            to_work = (KeyState.FAILED_RETRYABLE, KeyState.IN_PROGRESS, OutboxStatus.HELD, status)
            moved(Moved(tenant, operation, key, intent, None, "accept", "retried", *to_work))
        case decisions.Expired() if counts:
            of(metrics.KEYS_REUSED, operation).inc()
        case _:
            pass


def _decided(decision: decisions.Decision | decisions.Limited) -> str:
    waits = isinstance(decision, decisions.InProgress) and decision.status == OutboxStatus.AWAITING
    return "awaiting" if waits else DECISIONS[type(decision)]


def refused_request(code: str) -> None:
    """A request answered with a problem; `code` is one of `idem.outbox.domain.problem_catalogue`."""
    of(metrics.REFUSED, code).inc()


def http_answer(route: str, method: str, status: int, seconds: float) -> None:
    """An answer. `route` is the template, never the path: a path without a route has no template and is not shown."""
    method = method if method in METHODS else "other"
    of(metrics.HTTP_ANSWERS, route, method, str(status)).inc()
    of(metrics.HTTP_SECONDS, route, method).observe(seconds)


def suspicious_key(kind: str) -> None:
    """A key that looks like personal data: email, phone, ssn. Never the value."""
    of(metrics.SUSPICIOUS_KEYS, kind).inc()


def waiting(requests: int) -> None:
    """How many requests this process holds until their intent is settled."""
    metrics.WAITERS.set(requests)


def webhook(provider: str, account: str, fate: str) -> None:
    """A verified webhook; `fate` says what idem did with it."""
    of(metrics.WEBHOOKS, provider, account, fate).inc()
    of(metrics.WEBHOOK_LAST, provider).set_to_current_time()
    log.info("webhook", provider=provider, account=account, fate=fate)


def webhook_foreign(provider: str, account: str) -> None:
    """A verified webhook that concerns no known call: another program uses the account."""
    of(metrics.WEBHOOKS_FOREIGN, provider, account).inc()


def webhook_out_of_time(provider: str, account: str, event_id: str) -> None:
    """A webhook that the provider has signed, with a time stamp that is not near our clock: no proof, but a hint."""
    of(metrics.WEBHOOKS_OUT_OF_TIME, provider, account).inc()
    log.warning("webhook_out_of_time", provider=provider, account=account, event_id=event_id)


def webhooks_wait(rows: int, oldest: float) -> None:
    """Webhooks that match no call yet, and the age of the oldest in seconds."""
    metrics.WEBHOOKS_UNMATCHED.set(rows)
    metrics.WEBHOOK_UNMATCHED_OLDEST.set(oldest)


def orders_wait(oldest: float, held: int) -> None:
    """For how many seconds the oldest row waits by its ordering key, and how many keys are held."""
    metrics.ORDER_OLDEST.set(oldest)
    metrics.ORDER_HELD.set(held)


def doubts_wait(rows: int, oldest: float) -> None:
    """Rows that recovery has still to doubt, and the age of the oldest entry in seconds."""
    metrics.DOUBTS.set(rows)
    metrics.DOUBTS_OLDEST.set(oldest)


def webhook_refused(provider: str, reason: str) -> None:
    """A webhook that was not taken. `provider` is a configured one, or `unknown`: never a word of the sender's."""
    of(metrics.WEBHOOKS_REFUSED, provider, reason).inc()
    log.warning("webhook_refused", provider=provider, reason=reason)


def claimed(provider: str, account: str, rows: int) -> None:
    """A worker has claimed rows: so many transitions, each of which is logged at level debug (`rows_claimed`)."""
    of(metrics.CLAIMED, provider, account).inc(rows)
    of(metrics.TRANSITIONS, "worker", OutboxStatus.PENDING, OutboxStatus.CLAIMED).inc(rows)


def rows_claimed(rows: Iterable[tuple[str, UUID, int]]) -> None:
    """The rows that were claimed: the operation, intent and attempt of each."""
    if not shows(logging.DEBUG):
        return
    for operation, intent, attempt in rows:
        log.debug(
            "transition", operation=operation, intent=str(intent), attempt=attempt, source="worker", kind="claimed",
            from_status="pending", to_status="claimed",
        )  # fmt: skip


def called(
    provider: str,
    account: str,
    intent: UUID,
    attempt: int,
    outcome: str,
    elapsed: float | None,
    failure: str = "none",
    how: str = "call",
) -> None:
    of(metrics.CALLS, provider, account, outcome, failure).inc()
    if elapsed is not None:
        of(metrics.CALL_SECONDS, provider, account).observe(elapsed)
    if not shows(logging.INFO):
        return
    log.info(
        how, intent=str(intent), provider=provider, account=account, attempt=attempt, outcome=outcome, failure=failure
    )


def settled_together(reports: int) -> None:
    """So many results were settled by one statement: as `reported` of each."""
    of(metrics.REPORTS, "settled").inc(reports)


def reported(intent: UUID, attempt: int, outcome: str, fate: str) -> None:
    of(metrics.REPORTS, fate).inc()
    if fate in ("late", "late_proof"):
        metrics.LEASES_LOST.inc()
    if fate != "settled":
        log.warning("report", intent=str(intent), attempt=attempt, outcome=outcome, fate=fate)


def overran(provider: str, account: str) -> None:
    """A user's function is still running after its deadline: it cannot be stopped, and it keeps its slot."""
    of(metrics.OVERRUNNING, provider, account).inc()
    log.warning("overran", provider=provider, account=account, do="pass call.deadline to all that it waits for")


def ended_after_all(provider: str, account: str) -> None:
    of(metrics.OVERRUNNING, provider, account).dec()


def unchecked(provider: str) -> None:
    """A function has sent without the last check."""
    log.warning("unchecked", provider=provider, do="call call.start() immediately before the first byte leaves")


def swept(intent: UUID, attempt: int, holder: str | None, to: str | None) -> None:
    metrics.SWEPT.inc()
    log.warning("swept", intent=str(intent), attempt=attempt, holder=holder, to=to)


def too_old(intent: UUID) -> None:
    metrics.TOO_OLD.inc()
    log.warning("too_old", intent=str(intent))


def pruned(what: str, rows: int) -> None:
    if rows:
        of(metrics.PRUNED, what).inc(rows)
        log.info("pruned", what=what, rows=rows)


def looked_up(provider: str, account: str, intent: UUID, how: str, lookup: str, why: str | None = None) -> None:
    of(metrics.LOOKUPS, provider, account, lookup).inc()
    if lookup in ("could_not_ask", "not_askable"):
        of(metrics.RECONCILE, provider, account, "failed").inc()
    said = {"why": why} if why and lookup in ("could_not_ask", "ambiguous") else {}
    log.info("lookup", intent=str(intent), provider=provider, account=account, how=how, result=lookup, **said)


def lookup_failed(provider: str, account: str) -> None:
    """A look that could not be made or written: the take runs out, and it is asked about again."""
    of(metrics.RECONCILE, provider, account, "failed").inc()


def settled(intent: UUID, how: str, to: str) -> None:
    """The reconciler has settled a row. `moved` counts the change of the row."""
    log.info("settled", intent=str(intent), how=how, to=to)


def proof_applied(intent: UUID | None, source: str, applied: str) -> None:
    of(metrics.PROOFS, source, applied).inc()
    log.info("proof", intent=str(intent) if intent else None, source=source, applied=applied)


def handler_succeeded(handler: str, intent: UUID, number: int) -> None:
    """A handler has handled an event, and its transaction has committed."""
    of(metrics.HANDLERS, handler, "succeeded").inc()
    log.info("handler_succeeded", handler=handler, intent=str(intent), number=number)


def handler_failed(handler: str, intent: UUID, number: int, error: BaseException, *, stopped: bool) -> None:
    """A handler has failed, and nothing of it is left; `stopped`: it has its dead letter and is not tried again."""
    of(metrics.HANDLERS, handler, "stopped" if stopped else "failed").inc()
    log.warning(
        "handler_failed", handler=handler, intent=str(intent), number=number, stopped=stopped, error=error_text(error)
    )


def handler_not_started(handler: str, intent: UUID, number: int, error: BaseException) -> None:
    """A handler was not begun, or its failure could not be kept: its event is found again."""
    log.warning("handler_not_started", handler=handler, intent=str(intent), number=number, error=error_text(error))


def local_step_ended(call: str, intent: UUID) -> None:
    """The function of a local step has run, and its transaction has committed."""
    of(metrics.LOCAL_STEPS, call, "ended").inc()
    log.info("local_step_ended", call=call, intent=str(intent))


def local_step_failed(call: str, intent: UUID, error: BaseException, *, stopped: bool) -> None:
    """It has failed, and nothing of it is left; `stopped`: it has its dead letter and is not tried again."""
    of(metrics.LOCAL_STEPS, call, "stopped" if stopped else "failed").inc()
    log.warning("local_step_failed", call=call, intent=str(intent), stopped=stopped, error=error_text(error))


def local_step_not_started(call: str, intent: UUID, error: BaseException) -> None:
    """It was not begun, or its failure could not be kept: it is found again."""
    log.warning("local_step_not_started", call=call, intent=str(intent), error=error_text(error))


def handlers_wait(waiting: Mapping[str, tuple[int, float]]) -> None:
    """How many events each handler has not handled yet, and the age of the oldest in seconds."""
    for handler, (events, oldest) in waiting.items():
        of(metrics.HANDLER_WAITING, handler).set(events)
        of(metrics.HANDLER_OLDEST, handler).set(oldest)


def passed(daemon: str, kind: str, provider: str = "", account: str = "") -> None:
    of(metrics.LAST_PASS, daemon, kind, provider, account).set_to_current_time()


def broken(daemon: str, error: BaseException, doing: str) -> None:
    """Something that should not happen: the daemon goes on, a person should look."""
    of(metrics.BROKEN, daemon).inc()
    log.error("broken", daemon=daemon, doing=doing, error=error_text(error))
