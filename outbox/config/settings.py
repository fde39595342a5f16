"""The settings of an installation: `idem.toml` and `IDEM_…`, one schema. Each says its unit, default and reason.

Durations are written `250ms`, `5s`, `2m`, `1h`, `10d`, or as a number of seconds, and are seconds here. A setting of
these sections has an environment variable, as `IDEM_WORKER_LEASE` for `worker.lease`, which wins over the file.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.config.http_settings import ApiSettings, EndpointSettings
from idem.outbox.database.address import has_password, libpq
from idem.outbox.values.settings_base import Duration, Secret, Section


class DatabaseSettings(Section):
    """Where the database is, and how long anything in it may take."""

    lock_timeout: ClassVar[float] = 5.0
    """Seconds to wait for a lock: nothing of idem waits long for one."""
    idle_in_transaction_timeout: ClassVar[float] = 30.0
    """Seconds that a session may idle inside a transaction: a frozen process does not hold locks for ever."""

    url: str | None = None
    """URL of the PostgreSQL database, postgresql://user@host/name, without a password; default none. IDEM_DATABASE_URL
    may hold the password, because an environment variable is not a file in a repository."""
    url_from: Secret | None = None
    """Where idem reads the URL with its password, {env = …} or {file = …}; default none."""
    connect_timeout: Duration = Field(default=5.0, gt=0)
    """Seconds to wait for a connection; default 5s, so that callers get 503 in bounded time. Change it for a slow
    network."""
    statement_timeout: Duration = Field(default=30.0, gt=0)
    """Seconds that one statement may take; default 30s. It is shorter than the lease, so that a stuck statement ends
    before its claims expire. Change it with worker.lease."""
    durability: Literal["single", "synchronous", "asynchronous"] = "single"
    """What survives a fail-over: `single` (default) is one durable server, `synchronous` a primary with a synchronous
    standby, `asynchronous` may lose commits. It decides whether idem accepts a new timeline. The operator of the
    database sets it."""

    @field_validator("url")
    @classmethod
    def _has_no_password(cls, value: str | None) -> str | None:
        if value is not None:
            libpq(value)
            if has_password(value):
                raise ValueError("a password never stands in idem.toml: use IDEM_DATABASE_URL or url_from")
        return value


class WorkerSettings(Section):
    """Who makes the calls."""

    batch: ClassVar[int] = 100
    """Rows claimed at once: a larger claim is slow, and a smaller one asks the database more often."""
    flush: ClassVar[float] = 0.002
    """Seconds that an outcome waits for others to be written with: one commit for many, and no call feels it."""

    slots: int = Field(default=16, ge=1, le=1000)
    """Calls that one lane makes at the same time in one process; default 16. Raise it for a fast provider with many
    calls. While tenants share the lane, one of them stays free for tenants that hold none."""
    lease: Duration = Field(default=60.0, gt=0)
    """Seconds for which the worker holds a claim; default 60s. It must be longer than a provider's deadline plus the
    margin; a crashed call stays unnoticed for as long."""
    margin: Duration = Field(default=5.0, gt=0)
    """Seconds of the lease that must be left after the deadline when a call begins; default 5s, so that the worker can
    store the outcome. Raise it for a slow database."""
    poll: Duration = Field(default=1.0, gt=0)
    """Seconds between two polls for due rows; default 1s. Notifications only make the worker quicker: polling finds
    every row. Raise it to save queries."""

    @model_validator(mode="after")
    def _has_room(self) -> WorkerSettings:
        if self.margin >= self.lease:
            raise ValueError("margin is not shorter than lease: no call would ever begin")
        return self


class SweeperSettings(Section):
    """Who ends expired claims, keys and records."""

    retention_interval: ClassVar[float] = 30.0
    """Seconds between two passes over keys: nothing waits for those."""
    history_interval: ClassVar[float] = 3600.0
    """Seconds between two walks over what is past its retention, which is a matter of days."""
    batch: ClassVar[int] = 100
    """Rows of one transaction: few enough that none is locked long."""
    daemon_retention: ClassVar[float] = 7 * 86400.0
    """Seconds for which rows of daemons that are gone are kept: what ran before a weekend."""

    interval: Duration = Field(default=1.0, gt=0)
    """Seconds between two passes over leases and queued rows; default 1s. It adds to the lease until a crash is
    noticed. An idle pass is two index probes; every fifth has two more, for redrives that were not made and for what a
    restore has left in doubt. Raise it to save queries."""
    tombstone_ttl: Duration = Field(default=30 * 86400.0, gt=0)
    """Seconds for which idem remembers an expired key and answers 410; default 30d: longer than providers remember
    theirs, so that a late retry is not a new payment. Raise it if clients retry later."""
    evidence_retention: Duration = Field(default=400 * 86400.0, ge=86400)
    """Seconds for which idem keeps evidence, events and requests of final intents, resolved dead letters, changes of
    lanes, and handlers that no program has any more; default 400d, longer than card disputes run. `idem db upgrade`
    writes it to the database, whose guards enforce it. Your auditors set it."""
    webhook_retention: Duration = Field(default=90 * 86400.0, ge=86400)
    """Seconds for which idem keeps webhook events, by which it recognises a repeated delivery; default 90d, longer than
    providers redeliver."""
    webhook_body_retention: Duration = Field(default=30 * 86400.0, ge=3600)
    """Seconds for which idem keeps the raw bodies of webhook events, which may hold personal data; default 30d. Your
    privacy officer sets it."""
    provider_answer_retention: Duration = Field(default=30 * 86400.0, ge=3600)
    """Seconds for which idem keeps the provider's own words about a call that did not succeed, redacted, up to 2 kB
    each; default 30d. Those of an intent with an open dead letter stay. Your privacy officer sets it."""


class ReconcilerSettings(Section):
    """Who settles what is unknown."""

    batch: ClassVar[int] = 50
    """Rows taken at once in one lane: each is asked about within its lease."""

    interval: Duration = Field(default=1.0, gt=0)
    """Seconds between two polls for due unknowns; default 1s. Raise it to save queries."""
    lease: Duration = Field(default=90.0, gt=0)
    """Seconds for which the reconciler holds a row; default 90s. It must be longer than the deadlines of a replay and a
    look-up together with the worker's margin."""
    slot_share: float = Field(default=0.25, gt=0, le=1)
    """Largest part of a lane's slots that look-ups and replays may take, above 0, at most 1; default 0.25, so that the
    unknowns of an outage do not hold up live payments. Raise it to settle them sooner."""


class InstallationSettings(Section):
    """Everything of idem.toml but its providers and operations."""

    environment: str = Field(default="development", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    """Name of the environment. `idem db upgrade` writes it into a new database and refuses to guess it; default
    development. A daemon of another environment refuses to start on this database."""
    app: str | None = None
    """The application whose operations and handlers idem serves, e.g. shop.payments:idem (module and name of its Idem);
    default none: the operations of this file alone."""
    database: DatabaseSettings = DatabaseSettings()
    """The database and its timeouts."""
    worker: WorkerSettings = WorkerSettings()
    """Who makes the calls."""
    api: ApiSettings = ApiSettings()
    """The HTTP API."""
    webhooks: EndpointSettings = EndpointSettings()
    """Where providers' events come in."""
    sweeper: SweeperSettings = SweeperSettings()
    """Who ends expired claims and old keys."""
    reconciler: ReconcilerSettings = ReconcilerSettings()
    """Who settles what is unknown."""
    doctor: DoctorSettings = DoctorSettings()
    """The limits of `idem doctor`."""
