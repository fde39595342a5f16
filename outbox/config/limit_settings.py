"""`providers.<name>.limits` in idem.toml: what the provider bears, of the whole fleet together."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from idem.outbox.config.section import Section
from idem.outbox.domain.contract import Limits

DEFAULT = Limits()
"""The defaults are written once, in `idem.outbox.domain.contract`."""

MOST: Final = 1_000_000
"""The database counts in numbers of four bytes, and nobody has a fleet that large."""


class LimitSettings(Section):
    """Limits of each account of the provider. Inline calls count, but wait for nothing: their code makes them."""

    concurrency: int | None = Field(
        default=DEFAULT.concurrency,
        ge=1,
        le=MOST,
        description="Calls at a time, of the whole fleet, look-ups too; default no limit but worker.slots. Two workers "
        "that claim at once may exceed it by what they claim. With 1, what has been due to be asked about for 30s "
        "comes before first sends.",
    )
    exact: bool = Field(
        default=DEFAULT.exact,
        description="Whether concurrency is never exceeded; default false: claims of a lane then take turns, which "
        "costs a round trip each.",
    )
    rate: float | None = Field(
        default=DEFAULT.rate,
        gt=0,
        description="Calls a second, of the whole fleet: first sends, replays, look-ups and cancels; default no limit. "
        "Each process has its part of it, by the number of workers and reconcilers that showed a sign of life in the "
        "last 30s; a process that starts exceeds it for at most 5s.",
    )
    processes: int | None = Field(
        default=DEFAULT.processes,
        ge=1,
        le=MOST,
        description="By how many processes the rate is divided; default: as many as live. Say it where the rate must "
        "hold while processes start.",
    )
    share: float = Field(
        default=DEFAULT.share,
        gt=0,
        lt=1,
        description="Largest part of concurrency and rate, above 0 and below 1, that look-ups and replays take "
        "together; default 0.5, so that the unknowns of an outage hold up no first send.",
    )

    def build(self) -> Limits:
        """The limits of the contract."""
        return Limits(
            concurrency=self.concurrency,
            exact=self.exact,
            rate=self.rate,
            share=self.share,
            processes=self.processes,
        )
