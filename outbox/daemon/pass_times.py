"""When a daemon last made each kind of its passes, so that one that hangs does not hide behind the others."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

from idem.outbox.observe import telemetry

RECORDED: Final = 20
"""Kinds of pass that a heartbeat names at the most: those that are overdue for longest."""


@dataclass(slots=True)
class PassTime:
    """One kind of pass: of one lane, or of the whole daemon where `provider` and `account` are empty.

    `every`: seconds between two of them. A daemon's start counts as the first, so that one that is never made is
    overdue too. Its clock never steps, and stands still while the machine sleeps.
    """

    daemon: str
    name: str
    every: float
    provider: str = ""
    account: str = ""
    _at: float = field(default_factory=time.monotonic)
    is_made: bool = False
    """It has been made at least once."""

    def made(self) -> None:
        """A pass has come to its end, with or without anything to do."""
        self._at, self.is_made = time.monotonic(), True
        self.publish()

    def publish(self) -> None:
        """Set the metric."""
        telemetry.passed(self.daemon, self.name, self.provider, self.account)

    @property
    def age(self) -> float:
        """Seconds since the last one, or since the start."""
        return time.monotonic() - self._at

    @property
    def overdue(self) -> float:
        """Seconds since the next one was due; 0 before that."""
        return max(0.0, self.age - self.every)


class PassTimes:
    """All kinds of pass of one daemon."""

    def __init__(self, daemon: str) -> None:
        self._daemon = daemon
        self._kinds: list[PassTime] = []

    def expect(self, name: str, every: float, provider: str = "", account: str = "") -> PassTime:
        """From now on this daemon makes such a pass about `every` seconds."""
        kind = PassTime(self._daemon, name, every, provider, account)
        self._kinds.append(kind)
        kind.publish()
        return kind

    def end(self) -> None:
        """No more passes are made: what the daemon still does is to finish what it has begun."""
        self._kinds.clear()

    @property
    def any_made(self) -> bool:
        """Whether any pass was made since the start."""
        return any(kind.is_made for kind in self._kinds)

    @property
    def overdue(self) -> float:
        """Seconds that the worst of them is overdue; 0 if none is."""
        return max((kind.overdue for kind in self._kinds), default=0.0)

    def record(self) -> list[dict[str, Any]]:
        """Those that are overdue, the worst first: name, lane, and seconds since the last one and since it was due."""
        late = sorted((kind for kind in self._kinds if kind.overdue > 0), key=lambda kind: kind.overdue, reverse=True)
        return [
            {"pass": k.name, "provider": k.provider, "account": k.account, "age": k.age, "overdue": k.overdue}
            for k in late[:RECORDED]
        ]
