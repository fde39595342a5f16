"""Events of the daemons themselves and of their supervisor: as in `telemetry`, one function each."""

import time
from uuid import UUID

from idem.outbox.database.caller_errors import NO_ROOM, ROOM_FOR_LOCKS
from idem.outbox.observe import metrics
from idem.outbox.observe.logs import error_text, log
from idem.outbox.observe.series import of
from idem.outbox.values.errors import one_line


def account_known(provider: str, account: str, identity: str, *, first: bool) -> None:
    """The account of the credentials is known; `first`: it is stored from now on."""
    of(metrics.ANOTHER_ACCOUNT, provider, account).set(0)
    log.info("account_stored" if first else "account_known", provider=provider, account=account, identity=identity)


def account_unchecked(provider: str, account: str, why: str, *, served: bool) -> None:
    """The account of the credentials is not known yet; idem asks again. Not `served`: meanwhile idem makes no look-up
    about calls that may have been made."""
    log.warning(
        "account_unchecked", provider=provider, account=account, why=why, served=served, setting=_check(provider)
    )


def another_account(
    provider: str, account: str, origin: str, *, expected: str, expected_origin: str, found: str
) -> None:
    """The credentials are another account's: this process serves nothing of this lane."""
    of(metrics.ANOTHER_ACCOUNT, provider, account).set(1)
    log.error(
        "another_account", provider=provider, account=account, setting=f"providers.{provider}.accounts.{account}",
        origin=origin, expected=expected, expected_origin=expected_origin, found=found,
        do="this process makes no call of this account: restore the credentials of the expected account and restart; "
           "if the change was on purpose, give the new account its own name in idem.toml (docs/on-call.md)",
    )  # fmt: skip


def _check(provider: str) -> str:
    return f"providers.{provider}.account_check"


WHO_HOLDS_IT = (
    "another transaction holds a lock that this statement needs, or the statement took too long: `idem doctor` names "
    "a session that holds locks on rows of idem"
)


def result_waiting(intent: UUID, attempt: int, error: BaseException) -> None:
    """The result of a call waits, because another session holds its row, its key or its intent."""
    log.warning(
        "result_waiting", intent=str(intent), attempt=attempt, error=error_text(error), sqlstate=_state(error),
        do=ROOM_FOR_LOCKS if _state(error) == NO_ROOM else WHO_HOLDS_IT,
    )  # fmt: skip


def results_waiting(reports: int) -> None:
    """How many results of calls wait for a lock of another session."""
    metrics.RESULTS_WAITING.set(reports)


def left_locked(what: str) -> None:
    """Something that another session holds is left to the next pass."""
    log.info("left_locked", what=what)


def _state(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None)


def heartbeats_missed(daemon: str, missed: int) -> None:
    """How many heartbeats in a row have failed."""
    of(metrics.HEARTBEATS_MISSED, daemon).set(missed)


def heartbeat_lost(daemon: str, name: str, error: BaseException) -> None:
    """Others count this process as silent, though it runs: its claims are swept as those of a dead one are."""
    log.error(
        "heartbeat_lost", daemon=daemon, id=name, error=error_text(error), sqlstate=_state(error),
        do="the daemon keeps working, and nothing is sent twice because of this; check that this role may write "
           "idem.daemons, and that no session locks the daemon's row there",
    )  # fmt: skip


def heartbeat_back(daemon: str, name: str) -> None:
    """It is seen alive again."""
    log.info("heartbeat_back", daemon=daemon, id=name)


def listening() -> None:
    """This process gets a notification for each accepted request."""
    metrics.LISTENING.set(1)
    log.info("listening")


def listens_no_more() -> None:
    """Its session for hints has ended."""
    metrics.LISTENING.set(0)


def listener_away(error: BaseException) -> None:
    """The session that listens is lost or cannot be made; once until it is back. Work is found by polling meanwhile."""
    log.warning("listener_away", error=one_line(error), do="nothing: the worker polls until the session is back")


class OutageLog:
    """One line when the database goes away, one a minute while it stays away, one when it is back."""

    def __init__(self, daemon: str, *, remind: float = 60.0) -> None:
        self._daemon = daemon
        self._remind = remind
        self._since: float | None = None
        self._reported = 0.0
        self._refused_reported = float("-inf")

    def down(self, error: BaseException) -> None:
        of(metrics.STORE_ERRORS, self._daemon).inc()
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif now - self._reported < self._remind:
            return
        self._reported = now
        log.error("database_away", daemon=self._daemon, error=one_line(error), seconds=round(now - self._since))

    def refused(self, error: BaseException) -> None:
        """A statement was refused by a server that works: it names why, at most once a minute."""
        of(metrics.STATEMENTS_REFUSED, self._daemon).inc()
        now = time.monotonic()
        if now - self._refused_reported < self._remind:
            return
        self._refused_reported = now
        log.warning(
            "statement_refused", daemon=self._daemon, error=error_text(error), sqlstate=_state(error),
            do=ROOM_FOR_LOCKS if _state(error) == NO_ROOM else WHO_HOLDS_IT,
        )  # fmt: skip

    def up(self) -> None:
        if self._since is not None:
            log.info("database_back", daemon=self._daemon, seconds=round(time.monotonic() - self._since))
            self._since = None


def database_changed(what: str, rows: int) -> None:
    """The database is another one than idem wrote to: see the runbook's restore page. `rows`: listed, to be doubted."""
    log.error("database_changed", what=what, rows_listed=rows)


def rows_doubted(unknown: int, left: int, left_for: float | None, open: int, waiting: int) -> None:
    """What recovery did with the listed rows. `left_for`: seconds. `waiting`: rows that other sessions hold; they stay
    listed."""
    more: dict[str, str | int] = {} if left_for is None else {"left_for": round(left_for)}
    if waiting:
        more["do"] = WHO_HOLDS_IT
    log.error("rows_doubted", rows_now_unknown=unknown, rows_left=left, rows_open=open, rows_waiting=waiting, **more)


CLOCK_JUMPED = (
    "leases, due times and replay windows depend on this clock: correct it, and let NTP slew it; if the server's "
    "machine was reset to a snapshot, stop the daemons and run `idem recover --lost` (docs/databases.md)"
)


def database_clock_jumped(daemon: str, seconds: float) -> None:
    """The database's clock went forward, or back, by so much more than this machine's."""
    log.warning("database_clock_jumped", daemon=daemon, seconds=round(seconds, 1), do=CLOCK_JUMPED)


SENT_AHEAD = (
    "idem does not replay these rows, and a list from the provider does not prove their absence; look-ups by key or "
    "reference still settle them: see `idem doctor`, and correct the server's clock (docs/databases.md)"
)


def sent_ahead(rows: int) -> None:
    """So many rows have a first send that lies ahead of the database's clock: its true time is not known."""
    if rows:
        log.warning("sent_ahead", rows=rows, do=SENT_AHEAD)


def metrics_unreadable(files: list[str]) -> None:
    """The counts of a terminated process are lost: it was killed during a write, or the disk is bad."""
    if files:
        log.warning("metrics_unreadable", files=files)


def lines_lost(lines: int) -> None:
    """Log lines were dropped, because the reader of the log does not read."""
    metrics.LINES_LOST.inc(lines)


def lines_lost_until_now(lines: int) -> None:
    """The reader reads again: how many it will never see."""
    log.warning("log_lines_lost", lines=lines)


_known_bad: set[str] = set()


def metric_files(bad: list[str]) -> None:
    """The files that could not be read at a scrape: each is logged once, and counted."""
    metrics.FILES_BAD.set(len(bad))
    metrics_unreadable([each for each in bad if each not in _known_bad])
    _known_bad.update(bad)


def no_metrics_folder(error: str) -> None:
    """A group without a folder: each process serves its own metrics, and the API shows its own alone."""
    log.error(
        "no_metrics_folder", error=error,
        do="free space in the temporary folder, or name another one in TMPDIR, and restart: until then the API's "
           "/metrics shows only its own process",
    )  # fmt: skip


def process_started(name: str, pid: int) -> None:
    log.info("process_started", process=name, pid=pid)


def process_ended(name: str, pid: int, how: str, again: float | None) -> None:
    """It ended; `again`: seconds until it is started again, None where that was the end."""
    write, more = (log.info, {}) if again is None else (log.error, {"again_in": round(again, 1)})
    write("process_ended", process=name, pid=pid, how=how, **more)


def daemon_failed(name: str, why: BaseException | str) -> None:
    """A daemon of `idem run --single-process` has failed: all others end too."""
    log.error(
        "daemon_failed", daemon=name, error=why if isinstance(why, str) else error_text(why),
        do="the process finishes running work and exits with code 1: let systemd or Kubernetes restart it",
    )  # fmt: skip


def stop_requested(by: str) -> None:
    """A daemon got this signal to stop: it accepts no new work and finishes running work."""
    log.info("stop_requested", signal=by)


def stopping(seconds: float) -> None:
    """A supervisor got a signal to stop: running calls have this long."""
    log.info("stopping", longest_seconds=round(seconds))


def not_encrypted(daemon: str, host: str) -> None:
    """The line to a database on another machine has no TLS."""
    log.warning(
        "database_not_encrypted", daemon=daemon, host=host, do="add ?sslmode=verify-full (or require) to the URL"
    )
