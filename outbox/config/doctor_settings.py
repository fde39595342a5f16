"""`[doctor]` in idem.toml: beyond which age or time left `idem doctor` calls something an error (promise P5)."""

from __future__ import annotations

from pydantic import Field

from idem.outbox.config.section import Duration, Section


class DoctorSettings(Section):
    """The limits of `idem doctor`. They change nothing but its findings; alerts should use the same."""

    queued: Duration = Field(
        default=900.0,
        gt=0,
        description="Seconds that a row may be due and not claimed; default 15m: longer than a deploy or a restart of "
        "every worker. What waits for a Retry-After or a back-off is not due.",
    )
    waiting: Duration = Field(
        default=3600.0,
        gt=0,
        description="Seconds that a row may wait behind another of its ordering key; default 1h.",
    )
    unfrozen: Duration = Field(
        default=300.0,
        gt=0,
        description="Seconds that a row accepted by SQL may wait to be rendered; default 5m: a worker does it at once.",
    )
    unswept: Duration = Field(
        default=60.0,
        gt=0,
        description="Seconds that a claim may be past its lease; default 1m: the sweeper looks every second.",
    )
    unknown: Duration = Field(
        default=7200.0,
        gt=0,
        description="Seconds that a row may be unknown; default 2h: by then the usual schedule has asked five times.",
    )
    awaiting: Duration = Field(
        default=259200.0,
        gt=0,
        description="Seconds that the provider may take to finish what it has accepted; default 3d: a bank transfer "
        "over a weekend.",
    )
    held: Duration = Field(
        default=604800.0,
        gt=0,
        description="Seconds that a row may be at rest; default 7d: the usual key, by which its client could retry, "
        "lives for 3d.",
    )
    paused: Duration = Field(
        default=86400.0, gt=0, description="Seconds that a lane may be paused; default 1d, then it was forgotten."
    )
    proof: Duration = Field(
        default=300.0,
        gt=0,
        description="Seconds that a stored proof or a webhook may wait to be applied; default 5m: longer than a lease.",
    )
    dead_letter: Duration = Field(
        default=86400.0,
        gt=0,
        description="Seconds that a dead letter may be open; default 1d, a working day. One that says that somebody "
        "may have paid twice is an error at once.",
    )
    handler: Duration = Field(
        default=3600.0,
        gt=0,
        description="Seconds that an event may wait for a handler of settled intents, and a handler for a worker that "
        "runs it; default 1h: its attempts take about half an hour until they end with a dead letter.",
    )
    replay_window: Duration = Field(
        default=7200.0,
        gt=0,
        description="Seconds that must be left in which an unknown row may be replayed; default 2h, or half of the "
        "window where that is shorter: time for a person to find out why nothing settles it.",
    )
    last_pass: Duration = Field(
        default=60.0,
        gt=0,
        description="Seconds that any kind of pass of a daemon that runs may be overdue, in any lane; default 1m.",
    )
    snapshot: Duration = Field(
        default=900.0,
        gt=0,
        description="Age in seconds of the oldest transaction or snapshot; default 15m: while it stands, nothing that "
        "is dead in the hot tables can be removed, and claims grow slow.",
    )
    clock: Duration = Field(
        default=5.0,
        gt=0,
        description="Seconds that this machine's clock and the database's may differ; default 5s. A tenth of the "
        "shortest pause_allowance is an error, whatever this says.",
    )
    verified: Duration = Field(
        default=365 * 86400.0,
        gt=0,
        description="Seconds for which a contract's `verified` date is believed; default 365d: providers change their "
        "retention and their errors.",
    )
