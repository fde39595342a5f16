"""`[doctor]` in idem.toml: beyond which age or time left `idem doctor` calls something an error (promise P5)."""

from typing import ClassVar

from pydantic import Field

from idem.outbox.values.settings_base import Duration, Section


class DoctorSettings(Section):
    """The limits of `idem doctor`. They change nothing but its findings; alerts should use the same."""

    waiting: ClassVar[float] = 3600.0
    """Seconds that a row may wait behind another of its ordering key; longer than a call and its look-ups."""
    unfrozen: ClassVar[float] = 300.0
    """Seconds that a row accepted by SQL may wait to be rendered: a worker does it at once."""
    unswept: ClassVar[float] = 60.0
    """Seconds that a claim may be past its lease: the sweeper looks every second."""
    awaiting: ClassVar[float] = 259200.0
    """Seconds that the provider may take to finish what it has accepted: a bank transfer over a weekend."""
    held: ClassVar[float] = 604800.0
    """Seconds that a row may be at rest: the default key, by which its client could retry, lives for 3 days."""
    paused: ClassVar[float] = 86400.0
    """Seconds that a lane may be paused; after a day it was forgotten."""
    proof: ClassVar[float] = 300.0
    """Seconds that a stored proof or a webhook may wait to be applied: longer than a lease."""
    handler: ClassVar[float] = 3600.0
    """Seconds that an event may wait for its handler, and a handler for a worker: its attempts take half an hour."""
    snapshot: ClassVar[float] = 900.0
    """Age in seconds of the oldest snapshot: while it stands, dead rows of the hot tables cannot be removed."""
    verified: ClassVar[float] = 365 * 86400.0
    """Seconds for which a contract's `verified` date is believed: providers change their errors and retention."""

    queued: Duration = Field(default=900.0, gt=0)
    """Seconds that a row may be due and not claimed; default 15m: longer than a deploy or a restart of every worker. A
    row that waits for a Retry-After or a back-off is not due."""
    approval: Duration = Field(default=14400.0, gt=0)
    """Seconds that a request may wait for a person's approval; default 4h, far below give_up_after: after start_within
    it cannot be approved any more, and its client must ask again."""
    unknown: Duration = Field(default=7200.0, gt=0)
    """Seconds that a row may be unknown; default 2h: by then the default schedule has asked five times. Raise it for a
    provider with a slower schedule."""
    dead_letter: Duration = Field(default=86400.0, gt=0)
    """Seconds that a dead letter may be open; default 1d, a working day of your operators. One that says that a
    customer may have paid twice is an error at once."""
    replay_window: Duration = Field(default=7200.0, gt=0)
    """Seconds that must be left in which an unknown row may be replayed; default 2h, or half of the window where that
    is shorter: time for an operator to find out why nothing settles it."""
    last_pass: Duration = Field(default=60.0, gt=0)
    """Seconds that any kind of pass of a running daemon may be overdue, in any lane; default 1m. Raise it with the
    intervals."""
    clock: Duration = Field(default=5.0, gt=0)
    """Seconds by which this machine's clock and the database's may differ; default 5s. A tenth of the shortest
    pause_allowance is always an error."""
