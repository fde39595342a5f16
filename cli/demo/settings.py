"""The settings of a demo: how many payments, how many faults, which rule to break on purpose."""

import random
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

HOME = Path(".idem") / "demo"
"""The folder of the embedded server and of the work folders, below the current one."""


class Sabotage(StrEnum):
    """A rule to break on purpose, from outside; the proof must catch it and name the intent."""

    BLIND_RESEND = "blind-resend"
    """An unknown payment of the bank without keys is put back into the queue (P2)."""
    LOSE_ROW = "lose-row"
    """The outbox row of an open payment is deleted (P1)."""
    REWRITE_ANSWER = "rewrite-answer"
    """A stored answer is changed after a client has seen it (P3)."""
    BELIEVE_ABSENT = "believe-absent"
    """The bank's first "nothing here" is accepted at once (P2)."""
    SKIP_EVIDENCE = "skip-evidence"
    """The evidence of a settled payment is deleted (P4)."""
    REPEAT_STEP = "repeat-step"
    """A flow forgets that its first step is done, and makes it again (P2)."""
    SHARE_KEY = "share-key"
    """The second step of a flow gets the provider key of the first (P2)."""
    SKIP_UNDO = "skip-undo"
    """A flow forgets what would undo its steps, before the bank refuses the last one (P3)."""


FLOW_SABOTAGES = frozenset({Sabotage.REPEAT_STEP, Sabotage.SHARE_KEY, Sabotage.SKIP_UNDO})
"""Those whose victim is a flow."""


def _any_seed() -> int:
    return random.SystemRandom().randrange(1, 10_000)


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One demo.

    `flows`: the share of payments that are flows, operations of several calls. `faults`: the share of requests that
    fail at the bank. `kills`: SIGKILLs of daemons while payments come in. `outage`: seconds for which PostgreSQL is
    stopped in the middle. `factor`: what the contract's times are multiplied by. `seconds`: for how long payments come
    in (None: by their number). `keep`: the work folder stays. `database_url` (None: an embedded server): a role on that
    server that may create databases.
    """

    payments: int = 500
    flows: float = 0.3
    faults: float = 0.3
    kills: int = 10
    seed: int = field(default_factory=_any_seed)
    workers: int = 2
    sabotage: Sabotage | None = None
    outage: float = 0.0
    factor: float = 0.05
    seconds: float | None = None
    json: bool = False
    keep: bool = False
    database_url: str | None = None
    home: Path = HOME

    @property
    def arrival(self) -> float:
        """Seconds over which the payments come in; kills happen in the same time."""
        if self.seconds is not None:
            return self.seconds
        return min(60.0, max(8.0, self.payments * 0.11))
