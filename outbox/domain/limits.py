"""`providers.<name>.limits` in idem.toml: what a provider bears, of the whole fleet together."""

from typing import Final

from pydantic import Field

from idem.outbox.values.settings_base import Section

MOST: Final = 1_000_000
"""The database counts in numbers of four bytes, and no fleet is that large."""


class Limits(Section):
    """Limits of each account of the provider. Inline calls count, but wait for nothing: their code makes them."""

    concurrency: int | None = Field(default=None, ge=1, le=MOST)
    """Calls at a time, of the whole fleet, look-ups too; default no limit but worker.slots. Two workers that claim at
    once may exceed it by what they claim. With 1, what has been due to be asked about for 30s comes before first
    sends."""
    exact: bool = False
    """Whether concurrency is never exceeded; default false: claims of a lane then take turns, which costs a round trip
    each."""
    rate: float | None = Field(default=None, gt=0)
    """Calls a second, of the whole fleet: first sends, replays, look-ups and cancels; default no limit. Each process
    has its part of it, by the number of workers and reconcilers that showed a heartbeat in the last 30s; a process
    that starts exceeds it for at most 5s."""
    processes: int | None = Field(default=None, ge=1, le=MOST)
    """By how many processes the rate is divided; default: as many as live. Say it where the rate must hold while
    processes start."""
    lookup_share: float = Field(default=0.5, gt=0, lt=1)
    """Largest part of concurrency and rate, above 0 and below 1, that look-ups and replays take together; default 0.5,
    so that the unknowns of an outage hold up no first send."""

    @property
    def asking(self) -> int | None:
        """How many of `concurrency` look-ups and replays may take together."""
        return None if self.concurrency is None else max(1, int(self.concurrency * self.lookup_share))
