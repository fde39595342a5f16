"""Events of the daemons: one function each, a log line and its metric together; no other module logs or counts.

No bodies, no credentials, no idempotency keys: rows are named by their intent. Metrics carry no tenant and no id.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from uuid import UUID

import structlog
from prometheus_client import Counter, Gauge, Histogram

from idem.outbox.states import OutboxStatus

KINDS = (*OutboxStatus, "paused", "proof", "dead_letter")

log: structlog.stdlib.BoundLogger = structlog.get_logger("idem")

CLAIMED = Counter("idem_claimed_total", "Rows claimed.", ["provider", "account"])
CALLS = Counter("idem_calls_total", "Calls to a provider by outcome.", ["provider", "account", "outcome"])
CALL_SECONDS = Histogram("idem_call_seconds", "Duration of calls to a provider.", ["provider", "account"])
REPORTS = Counter("idem_reports_total", "Ends of claims as reported by their holders.", ["fate"])
SWEPT = Counter("idem_swept_total", "Claims whose lease ran out.")
HELD = Counter("idem_too_old_total", "Queued rows that were too old to be started.")
KEYS = Counter("idem_keys_pruned_total", "Keys expired or deleted.", ["what"])
LOOKS = Counter("idem_looks_total", "Looks of the reconciler by what they showed.", ["provider", "account", "look"])
SETTLED = Counter("idem_settled_total", "Unknown or awaiting rows settled, by how.", ["how"])
PROOFS = Counter("idem_proofs_total", "Proofs from outside a claim, by what became of them.", ["source", "applied"])
STORE_ERRORS = Counter("idem_store_errors_total", "Statements that failed because the database was away.", ["daemon"])
LAST_PASS = Gauge("idem_last_pass_timestamp_seconds", "When a daemon last finished a pass.", ["daemon"])
OLDEST = Gauge("idem_oldest_age_seconds", "Age of the oldest of what is unsettled.", ["what"])
ROWS = Gauge("idem_unsettled", "How much of each kind is unsettled.", ["what"])
WINDOW = Gauge("idem_replay_window_left_seconds", "The least time left in which an unknown may be replayed.")


def set_up(*, json: bool, level: str = "info") -> None:
    """Configure structlog for a daemon: one line an event on standard error, as JSON or for a console."""
    # One line a call, with URL and address: the daemons have their own.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    renderer: structlog.typing.Processor
    renderer = (
        structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def claimed(provider: str, account: str, rows: int) -> None:
    CLAIMED.labels(provider, account).inc(rows)


def called(provider: str, account: str, intent: UUID, attempt: int, outcome: str, elapsed: float | None) -> None:
    CALLS.labels(provider, account, outcome).inc()
    if elapsed is not None:
        CALL_SECONDS.labels(provider, account).observe(elapsed)
    log.info("call", intent=str(intent), provider=provider, account=account, attempt=attempt, outcome=outcome)


def reported(intent: UUID, attempt: int, outcome: str, fate: str) -> None:
    REPORTS.labels(fate).inc()
    if fate != "settled":
        log.warning("report", intent=str(intent), attempt=attempt, outcome=outcome, fate=fate)


def swept(intent: UUID, attempt: int, holder: str | None, to: str | None) -> None:
    SWEPT.inc()
    log.warning("swept", intent=str(intent), attempt=attempt, holder=holder, to=to)


def too_old(intent: UUID) -> None:
    HELD.inc()
    log.warning("too_old", intent=str(intent))


def pruned(what: str, rows: int) -> None:
    if rows:
        KEYS.labels(what).inc(rows)
        log.info("pruned", what=what, rows=rows)


def looked(provider: str, account: str, intent: UUID, how: str, look: str) -> None:
    LOOKS.labels(provider, account, look).inc()
    log.info("look", intent=str(intent), provider=provider, account=account, how=how, look=look)


def settled(intent: UUID, how: str, to: str) -> None:
    SETTLED.labels(how).inc()
    log.info("settled", intent=str(intent), how=how, to=to)


def proof_applied(intent: UUID | None, source: str, applied: str) -> None:
    PROOFS.labels(source, applied).inc()
    log.info("proof", intent=str(intent) if intent else None, source=source, applied=applied)


def aged(oldest: Mapping[str, tuple[int, float]], window_left: float | None) -> None:
    """How much of each kind is unsettled, and how old the oldest is (P5); what is not named is empty."""
    for what in {*KINDS, *oldest}:
        rows, age = oldest.get(what, (0, 0.0))
        ROWS.labels(what).set(rows)
        OLDEST.labels(what).set(age)
    WINDOW.set(window_left if window_left is not None else float("inf"))


def passed(daemon: str) -> None:
    LAST_PASS.labels(daemon).set_to_current_time()


def broken(daemon: str, error: BaseException, doing: str) -> None:
    """Something that should not happen: the daemon goes on, a person should look."""
    log.error("broken", daemon=daemon, doing=doing, error=f"{type(error).__name__}: {error}"[:500])


class Outage:
    """One line when the database goes away, one a minute while it stays away, one when it is back."""

    def __init__(self, daemon: str, *, remind: float = 60.0) -> None:
        self._daemon = daemon
        self._remind = remind
        self._since: float | None = None
        self._told = 0.0

    def down(self, error: BaseException) -> None:
        STORE_ERRORS.labels(self._daemon).inc()
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif now - self._told < self._remind:
            return
        self._told = now
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        log.error("database_away", daemon=self._daemon, error=reason, seconds=round(now - self._since))

    def up(self) -> None:
        if self._since is not None:
            log.info("database_back", daemon=self._daemon, seconds=round(time.monotonic() - self._since))
            self._since = None


def database_changed(what: str, rows: int) -> None:
    """The database is another one than idem wrote to: see the runbook's restore page."""
    log.error("database_changed", what=what, rows_now_unknown=rows)
