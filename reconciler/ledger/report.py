"""What a ledger check came to, for people and programs: keys are names that stay."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from idem.reconciler.ledger.discrepancies import Discrepancy, Opened, utc

Walked: TypeAlias = Literal["complete", "incomplete", "not_listed"]
"""complete: both lists were read to their ends. incomplete: what was not seen proves nothing. not_listed: the provider
has no such list, or the contract does not say how to ask for it."""

COUNTED = ("matched", "settled_now", "ours_only", "theirs_only", "foreign", "open", "decided", "not_compared")
"""What is counted of a lane: the kinds of `compare`, and what a person has decided already; `not_compared`: not on
the list, and the question about it failed."""


@dataclass
class LaneReport:
    """One (provider, account). `window`: POSIX seconds, by the database's clock. `objects`: how many were listed.

    `found`: the discrepancies, `settled`: intents that were settled by what the list shows. Both are as long as what is
    counted, and the check ends before they are too long.
    """

    provider: str
    account: str
    walked: Walked = "complete"
    why: str | None = None
    window: tuple[float, float] | None = None
    objects: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    found: list[tuple[Discrepancy, Opened | None]] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)

    @property
    def discrepancies(self) -> int:
        """How many without a decision."""
        return self.counts["ours_only"] + self.counts["theirs_only"]

    def add(self, found: Discrepancy, entry: Opened | None) -> None:
        """Count a discrepancy, with its entry if there is one."""
        self.counts["decided" if entry is not None and entry.resolution is not None else found.kind] += 1
        self.found.append((found, entry))

    def as_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "provider": self.provider,
            "account": self.account,
            "walked": self.walked,
            "why": self.why,
            "since": None if self.window is None else utc(self.window[0]),
            "until": None if self.window is None else utc(self.window[1]),
            "objects": self.objects,
            **{name: self.counts[name] for name in COUNTED},
            "settled": self.settled,
            "discrepancies": [
                found.details()
                | {
                    "dead_letter": None if entry is None else str(entry.letter),
                    "opened_now": entry is not None and entry.new,
                    "decided": None if entry is None else entry.resolution,
                }
                for found, entry in self.found
            ],
        }


@dataclass(frozen=True)
class Checked:
    """All lanes of one check."""

    lanes: tuple[LaneReport, ...]
    dry_run: bool

    @property
    def discrepancies(self) -> int:
        """How many without a decision, in all lanes."""
        return sum(lane.discrepancies for lane in self.lanes)

    @property
    def complete(self) -> bool:
        """Whether everything that can be listed was read to its end, and every doubt was asked about."""
        return all(lane.walked != "incomplete" for lane in self.lanes)

    @property
    def compared(self) -> bool:
        """Whether any list was read: where no provider has one, nothing is known."""
        return any(lane.walked == "complete" for lane in self.lanes)

    @property
    def clean(self) -> bool:
        """Whether both sides are known to say the same."""
        return self.complete and self.compared and not self.discrepancies

    def as_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "clean": self.clean,
            "complete": self.complete,
            "compared": self.compared,
            "dry_run": self.dry_run,
            "lanes": [lane.as_data() for lane in self.lanes],
        }
