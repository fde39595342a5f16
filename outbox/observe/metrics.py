"""Every Prometheus metric of idem, and how to read them: of this process, or of all processes of a group together.

Label values come from closed sets or from the configuration: never a tenant, a key or an id. If
`PROMETHEUS_MULTIPROC_DIR` is set, each process writes into files there, and the process that serves `/metrics` adds
them up. No series names a process, so a restart adds none.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.registry import Collector

from idem.outbox.observe import metric_files

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
if os.environ.get(DIRECTORY):
    metric_files.install()
LANE = ["provider", "account"]
WHAT = ["what", *LANE]
CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)
HTTP_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SETTLE_BUCKETS = (1, 5, 15, 30, 60, 300, 900, 3600, 6 * 3600, 86400, 3 * 86400, 10 * 86400)


def _newest(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge of the whole database: of several processes, the one that has set it last counts."""
    return Gauge(name, text, labels, multiprocess_mode="mostrecent")


def _sum(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge of each process: those of all live processes are added up."""
    return Gauge(name, text, labels, multiprocess_mode="livesum")


# What clients ask for.
ACCEPTS = Counter(
    "idem_accepts_total",
    "Requests by what accept decided. The sweeper counts those of the library, inline calls and SQL.",
    ["operation", "decision"],
)
REFUSED = Counter("idem_requests_refused_total", "HTTP requests answered with a problem, by its code.", ["code"])
HTTP_ANSWERS = Counter(
    "idem_http_answers_total", "HTTP answers by route template and status.", ["route", "method", "status"]
)
HTTP_SECONDS = Histogram(
    "idem_http_seconds", "Time to answer an HTTP request, including the wait for its end.", ["route", "method"],
    buckets=HTTP_BUCKETS,
)  # fmt: skip
SUSPICIOUS_KEYS = Counter(
    "idem_keys_suspicious_total", "Idempotency keys that look like personal data: email, phone or ssn.", ["kind"]
)
KEYS_REUSED = Counter(
    "idem_keys_used_after_expiry_total", "Requests with a key whose answer had expired.", ["operation"]
)
WAITERS = _sum("idem_waiters", "Requests that wait until their intent is settled.")

# What is called.
CLAIMED = Counter("idem_claimed_total", "Rows claimed.", LANE)
CALLS = Counter(
    "idem_calls_total", "Calls to a provider by outcome and class of failure, including replays.",
    [*LANE, "outcome", "failure"],
)  # fmt: skip
CALL_SECONDS = Histogram("idem_call_seconds", "Duration of calls to a provider.", LANE, buckets=CALL_BUCKETS)
OVERRUNNING = _sum(
    "idem_overrunning_calls", "Send and look-up functions that are still running after their deadline.", LANE
)
ANOTHER_ACCOUNT = _sum(
    "idem_another_account",
    "Processes that do not serve a lane, because its credentials belong to another account.",
    LANE,
)
REPORTS = Counter("idem_reports_total", "Results of attempts, as reported by the holders of the claims.", ["fate"])
LEASES_LOST = Counter("idem_leases_lost_total", "Calls that lost their claim before their result was reported.")
SWEPT = Counter("idem_swept_total", "Claims whose lease expired.")
TOO_OLD = Counter("idem_too_old_total", "Queued rows that were too old to send.")
TRANSITIONS = Counter(
    "idem_transitions_total", "Changes of a row's status, by their source; `none` is a new row, `gone` a removed one.",
    ["source", "from_status", "to_status"],
)  # fmt: skip

# What is unsettled, as the sweeper sees it.
ROWS = _newest("idem_unsettled", "Rows by status in lanes that are not paused; stored proofs; open dead letters.", WHAT)
OLDEST = _newest("idem_oldest_age_seconds", "Age of the oldest of each kind.", WHAT)
PAUSED_ROWS = _newest("idem_paused", "Rows by status in paused lanes.", WHAT)
PAUSED_OLDEST = _newest("idem_paused_oldest_age_seconds", "Age of the oldest of each kind in paused lanes.", WHAT)
OVERDUE = _newest(
    "idem_overdue_seconds",
    "How long the longest-due row has been due, by status, in lanes that are not paused.",
    WHAT,
)
WINDOW = _newest(
    "idem_replay_window_left_seconds",
    "The shortest time left in which an unknown row may be replayed, or a row that a restore has left may be sent, by "
    "the provider's promise at accept and its contract now; +Inf if there is no such row, negative once the time is "
    "over.",
    WHAT,
)
DEAD_LETTERS_OPEN = _newest("idem_dead_letters_open", "Open dead letters by reason.", ["reason", *LANE])
DEAD_LETTERS = Counter("idem_dead_letters_total", "Dead letters opened, by reason.", ["reason"])

# How it is settled.
LOOKUPS = Counter(
    "idem_lookups_total", "Look-ups by what they showed; could_not_ask and not_askable showed nothing.",
    [*LANE, "result"],
)  # fmt: skip
RECONCILE = Counter(
    "idem_reconcile_total",
    "Rows that became unknown or awaiting (scheduled), rows that no longer are (resolved), and look-ups that could "
    "not be made or written (failed).",
    [*LANE, "event"],
)
SETTLED = Counter(
    "idem_settled_total",
    "Unknown or awaiting rows settled, by how they were settled and the state that followed.",
    ["how", "state"],
)
SETTLE_SECONDS = Histogram(
    "idem_settle_seconds", "Time from unknown to settled, by how the row was settled.", ["how"], buckets=SETTLE_BUCKETS
)
PROOFS = Counter("idem_proofs_total", "Proofs from outside a claim, by what idem did with them.", ["source", "applied"])
WEBHOOKS = Counter("idem_webhooks_total", "Verified webhooks by what idem did with them.", [*LANE, "fate"])
WEBHOOKS_REFUSED = Counter("idem_webhooks_refused_total", "Webhooks refused, by reason.", ["provider", "reason"])
WEBHOOKS_OUT_OF_TIME = Counter(
    "idem_webhooks_out_of_time_total",
    "Genuine webhooks whose time stamp differs from this clock by more than `tolerance`; idem asks the provider about "
    "them.",
    LANE,
)
WEBHOOKS_FOREIGN = Counter(
    "idem_webhooks_foreign_total",
    "Verified webhooks that concern no call of idem: another program uses the account.",
    LANE,
)
WEBHOOKS_UNMATCHED = _newest(
    "idem_webhooks_unmatched",
    "Webhooks that match no call yet and are neither a dead letter nor foreign; counted up to 10,000.",
)
WEBHOOK_UNMATCHED_OLDEST = _newest(
    "idem_webhooks_unmatched_oldest_seconds", "Age of the oldest webhook that matches no call yet."
)
DOUBTS = _newest("idem_doubts", "Rows that recovery has still to doubt; idem does not send or settle them.")
DOUBTS_OLDEST = _newest(
    "idem_doubts_oldest_seconds",
    "Age of the oldest row that recovery has still to doubt: another session locks it, or no sweeper runs.",
)
ORDER_OLDEST = _newest(
    "idem_order_oldest_seconds", "For how long the oldest row has been waiting for its turn by its ordering key."
)
ORDER_HELD = _newest(
    "idem_order_held_keys",
    "Ordering keys that are held after a refusal until an operator runs idem intents unblock; counted up to 10,000.",
)
WEBHOOK_LAST = _newest(
    "idem_webhook_last_timestamp_seconds", "When a provider's last verified webhook arrived.", ["provider"]
)

# Who hears of it.
HANDLERS = Counter(
    "idem_handlers_total",
    "Runs of a handler for an event, by result: succeeded, failed (retried), stopped (a dead letter).",
    ["handler", "result"],
)
HANDLER_OLDEST = _newest(
    "idem_handler_oldest_seconds",
    "Age of the oldest event that a handler has not handled yet, including dead letters.",
    ["handler"],
)
HANDLER_WAITING = _newest(
    "idem_handler_waiting",
    "Events that a handler has not handled yet, including dead letters; counted up to 10,000.",
    ["handler"],
)

LOCAL_STEPS = Counter(
    "idem_local_steps_total",
    "Runs of the function of a local step, by result: ended, failed (retried), stopped (a dead letter).",
    ["call", "result"],
)

# How idem itself is.
PRUNED = Counter(
    "idem_rows_pruned_total", "Keys that were expired or deleted, and history rows that were deleted.", ["what"]
)
STORE_ERRORS = Counter(
    "idem_store_errors_total", "Statements that failed because the database was unreachable.", ["daemon"]
)
STATEMENTS_REFUSED = Counter(
    "idem_statements_refused_total", "Statements of a daemon that failed because of a lock or a time limit.", ["daemon"]
)
HEARTBEATS_MISSED = Gauge(
    "idem_heartbeats_missed",
    "Heartbeats of a daemon that failed in a row; from 6 on the daemon counts as silent.",
    ["daemon"],
    multiprocess_mode="livemax",
)
LISTENING = _sum("idem_listening", "Workers whose notification session is open; the others find work by polling.")
RESULTS_WAITING = _sum("idem_results_waiting", "Results of calls that wait because another session locks their row.")
BROKEN = Counter("idem_broken_total", "Things that should not happen; each is a log line `broken`.", ["daemon"])
FILES_BAD = _newest(
    "idem_metric_files_unreadable",
    "Metric files of a group that could not be read at the last scrape; the others are shown.",
)
LINES_LOST = Counter(
    "idem_log_lines_lost_total", "Log lines that were dropped because the reader of the log did not read."
)
LAST_PASS = Gauge(
    "idem_last_pass_timestamp_seconds",
    "When a daemon last finished this kind of pass, or started; of several processes, the one that is furthest "
    "behind. Provider and account are empty for a pass that does not belong to a lane.",
    ["daemon", "pass", *LANE],
    multiprocess_mode="livemin",
)


# The library is not typed there.
_mark_dead: Any = mark_process_dead
unreadable: list[str] = []
"""The files that could not be read when the metrics of a group were last asked for."""
_unmerged: set[int] = set()
"""Processes that have ended while there was no room for what they counted, which still is in their own files."""


class _Group(Collector):
    """All processes of a group; never in the middle of `forget`."""

    def collect(self) -> Iterable[Metric]:
        with _locked(fcntl.LOCK_SH):
            found, unreadable[:] = metric_files.collected(Path(os.environ[DIRECTORY]))
        return found


def registry() -> CollectorRegistry:
    """The registry to serve: of this process, or of the group where `PROMETHEUS_MULTIPROC_DIR` is set."""
    if not os.environ.get(DIRECTORY):
        return REGISTRY
    group = CollectorRegistry()
    group.register(_Group())
    return group


def exposition() -> tuple[bytes, str]:
    """The metrics as text, and its content type."""
    return generate_latest(registry()), CONTENT_TYPE_LATEST


def forget(pid: int) -> list[str]:
    """A process of the group has ended: call it once, after it was reaped.

    What it had in hand (waiters) is gone, what it counted stays: its files are added to those of the dead, so that
    counters never go back, and a process that is restarted for years leaves no more files than it has now. Without a
    group there is nothing to forget. Returns the names of the files that could not be read and were removed. Raises
    OSError where there is no room: the files stay, and are counted, until the next call.
    """
    if not os.environ.get(DIRECTORY):
        return []
    bad = []
    with _locked(fcntl.LOCK_EX):
        _mark_dead(pid)
        _unmerged.add(pid)
        for each in list(_unmerged):
            for left in Path(os.environ[DIRECTORY]).glob(f"*_{each}.db"):
                try:
                    metric_files.merge(left.with_name(f"{left.name.removesuffix(f'_{each}.db')}_0.db"), left)
                except metric_files.Spoiled:
                    bad.append(left.name)
            _unmerged.discard(each)
    return bad


@contextmanager
def _locked(how: int) -> Iterator[None]:
    try:
        file = Path(os.environ[DIRECTORY], "lock").open("a")  # noqa: SIM115
    except OSError:  # no descriptor or no room is left: to be asked in the middle of `forget` is unlikely enough
        yield
        return
    with file:
        fcntl.flock(file, how)
        yield
