"""Clocks: the database's clock decides. It must not go back, and this machine's clock should agree with it."""

from datetime import UTC, datetime

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning

CLOCK = "SELECT clock_timestamp() AS now"
# A heartbeat from the future was written before the clock went back.
AHEAD = """
SELECT extract(epoch FROM max(d.seen_at) - clock_timestamp())::float8 AS ahead FROM idem.daemons d
"""
SLACK = 1.0
TENTH = 10
"""A pause_allowance must be at least this many times the tolerated clock step."""
SHORTEST = 900.0


async def clocks(examination: Examination) -> Findings:
    """Compare this machine's clock with the database's, within the round-trip time."""
    before = datetime.now(UTC)
    there = (await examination.one(CLOCK))["now"]
    after = datetime.now(UTC)
    off = abs((there - (before + (after - before) / 2)).total_seconds())
    doubt = (after - before).total_seconds() / 2
    what = f"this machine's clock differs from the database's by {off:.1f} s (± {doubt:.1f} s)"
    allowance = SHORTEST
    if examination.configuration is not None:
        contracts = [provider.contract for provider in examination.configuration.providers.values()]
        allowance = min((contract.pause_allowance for contract in contracts), default=SHORTEST)
    do = "Check NTP on both machines (timedatectl, chronyc tracking)"
    if (off - doubt) * TENTH > allowance:
        yield error(f"{what}: more than a tenth of the shortest pause_allowance, {allowance:g} s", do)
    elif off - doubt > examination.limits.clock:
        yield warning(f"{what}; up to {examination.limits.clock:g} s is normal", do)
    yield ok(what)


# The largest jump that a daemon reports in its heartbeat.
JUMPED = """
SELECT d.id, (d.last_pass -> 'clock' ->> 'jumped')::float8 AS jumped, d.last_pass -> 'clock' ->> 'at' AS at
  FROM idem.daemons d WHERE d.last_pass -> 'clock' ->> 'jumped' IS NOT NULL
 ORDER BY abs((d.last_pass -> 'clock' ->> 'jumped')::float8) DESC LIMIT 1
"""


async def clock_jumped(examination: Examination) -> Findings:
    """Check whether a daemon saw the database's clock jump in the last day."""
    for each in await examination.all(JUMPED):
        yield warning(
            f"the database's clock jumped {'forward' if each['jumped'] > 0 else 'back'} by {abs(each['jumped']):.0f} "
            f"s (seen by {each['id']}, which then read {each['at']})",
            "Let NTP slew the clock of the database's machine, and never step it while idem runs. If that machine was "
            "reset to a snapshot, stop the daemons and run `idem recover --lost --reason …` (docs/databases.md)",
        )


async def clock_went_back(examination: Examination) -> Findings:
    """Check whether the database's clock is behind a time that it has written."""
    ahead = (await examination.one(AHEAD))["ahead"]
    if ahead is not None and ahead > SLACK:
        yield error(
            f"the database's clock went back: it has written a time {ahead:.0f} s ahead of now, so leases and "
            "waits last that much longer",
            "Check NTP on the database's machine; after a fail-over or a restore, see docs/on-call.md",
        )
