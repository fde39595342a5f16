"""Open rows whose times lie ahead of the database's clock: what waits too long, and what has no known first send."""

from __future__ import annotations

from typing import Final

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, error, several, warning
from idem.cli.doctor.queue import MOST
from idem.cli.output import age
from idem.outbox.domain.contract import Contract

DAY: Final = 86400.0

# The time of a change or of a claim is never ahead by itself. A next look is, by what a contract lets it wait.
AHEAD = """
SELECT count(o.until)::integer AS rows, (count(*) FILTER (WHERE o.status = 'claimed' AND o.until IS NOT NULL))::integer
       AS claimed, max(extract(epoch FROM o.until - statement_timestamp()))::float8 AS ahead,
       (count(*) FILTER (WHERE o.unknown))::integer AS unknown
  FROM (SELECT r.status, idem.is_ahead(greatest(r.first_sent_at, r.doubted_since, r.denied_sent_at)) AS unknown,
               CASE WHEN idem.is_ahead(greatest(r.status_since, r.claimed_at))
                    THEN greatest(r.status_since, r.claimed_at)
                    WHEN r.status IN ('unknown', 'awaiting')
                     AND r.available_at > statement_timestamp() + make_interval(secs => %(longest)s)
                    THEN r.available_at END AS until
          FROM (SELECT * FROM idem.outbox LIMIT %(most)s) r) o
"""


def longest_wait(contract: Contract) -> float:
    """Seconds after which the next look at a row comes at the latest, with what is added at random."""
    steps = (*contract.schedule, *contract.pending_schedule, 60 * contract.schedule[0], contract.retry_after_cap, DAY)
    return 2 * max(*steps, contract.flight_limit + contract.pause_allowance + contract.lookup.horizon)


async def times_ahead(examination: Examination) -> list[CheckResult]:
    """Whether the database's clock was ahead when open rows were written, or is behind now."""
    contracts = [] if examination.configuration is None else examination.configuration.providers.values()
    longest = max((longest_wait(provider.contract) for provider in contracts), default=30 * DAY)
    found = await examination.one(AHEAD, {"longest": longest, "most": MOST})
    findings: list[CheckResult] = []
    if found["rows"]:
        leases = f"; {several(found['claimed'], 'of them is', 'of them are')} claimed" if found["claimed"] else ""
        findings.append(
            error(
                "clock",
                f"{several(found['rows'], 'open row was', 'open rows were')} written at a time that lies ahead of the "
                f"database's clock, by {age(found['ahead'])} at most{leases}. Leases and waits of that time end as "
                "much later, and no daemon takes these rows before",
                "If the clock is behind now, make it right. If it was ahead, `idem reconcile --now` asks about what is "
                "unknown or awaited; leases and queued rows wait (docs/databases.md, The server's clock)",
            )
        )
    if found["unknown"]:
        findings.append(
            warning(
                "clock",
                f"when {several(found['unknown'], 'open row was', 'open rows were')} sent first is not known: the time "
                "lies ahead of the database's clock. They are not replayed, and a list since then proves no absence",
                "Look-ups by key or reference settle them; for the others look at the provider's own console: "
                "`idem unknowns list`, `idem dlq list`",
            )
        )
    return findings
