"""Clocks: the database's own decides everything; it must not go back, and ours should agree with it."""

from __future__ import annotations

from datetime import UTC, datetime

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, error, ok, warning

CLOCK = "SELECT clock_timestamp() AS now"
# A daemon's sign of life from the future was written before the clock went back.
AHEAD = """
SELECT extract(epoch FROM max(d.seen_at) - clock_timestamp())::float8 AS ahead FROM idem.daemons d
"""
SLACK = 1.0
TENTH = 10
"""A pause_allowance must be at least so many times the step of a clock that is tolerated."""
SHORTEST = 900.0


async def clocks(examination: Examination) -> list[CheckResult]:
    """How far this machine's clock is from the database's, give or take the way there and back."""
    before = datetime.now(UTC)
    there = (await examination.one(CLOCK))["now"]
    after = datetime.now(UTC)
    off = abs((there - (before + (after - before) / 2)).total_seconds())
    doubt = (after - before).total_seconds() / 2
    what = f"this machine's clock is {off:.1f} s from the database's (give or take {doubt:.1f} s)"
    allowance = SHORTEST
    if examination.configuration is not None:
        contracts = [provider.contract for provider in examination.configuration.providers.values()]
        allowance = min((contract.pause_allowance for contract in contracts), default=SHORTEST)
    do = "Check NTP on both machines (timedatectl, chronyc tracking)"
    if (off - doubt) * TENTH > allowance:
        return [error("clock", f"{what}: more than a tenth of the shortest pause_allowance, {allowance:g} s", do)]
    if off - doubt > examination.limits.clock:
        return [warning("clock", f"{what}; at most {examination.limits.clock:g} s is usual", do)]
    return [ok("clock", what)]


# The largest jump that a daemon tells of in its sign of life.
JUMPED = """
SELECT d.id, (d.last_pass -> 'clock' ->> 'jumped')::float8 AS jumped, d.last_pass -> 'clock' ->> 'at' AS at
  FROM idem.daemons d WHERE d.last_pass -> 'clock' ->> 'jumped' IS NOT NULL
 ORDER BY abs((d.last_pass -> 'clock' ->> 'jumped')::float8) DESC LIMIT 1
"""


async def clock_jumped(examination: Examination) -> list[CheckResult]:
    """Whether a daemon has seen the database's clock jump in the last day."""
    return [
        warning(
            "clock",
            f"the database's clock jumped {'forward' if each['jumped'] > 0 else 'back'} by {abs(each['jumped']):.0f} s "
            f"(seen by {each['id']}, which read {each['at']} then)",
            "Let NTP slew the clock of the database's machine, and never step it while idem runs. If that machine was "
            "put back to a snapshot, stop the daemons and run `idem recover --lost --reason …` (docs/databases.md)",
        )
        for each in await examination.all(JUMPED)
    ]


async def clock_went_back(examination: Examination) -> list[CheckResult]:
    """Whether the database's clock is behind what it has itself written."""
    ahead = (await examination.one(AHEAD))["ahead"]
    if ahead is not None and ahead > SLACK:
        return [
            error(
                "clock",
                f"the database's clock went back: it has written a time that is {ahead:.0f} s ahead of now, so leases "
                "and waits last longer by that",
                "Check NTP on the database's machine; after a fail-over or a restore, see docs/on-call.md",
            )
        ]
    return []
