"""Open rows with times ahead of the database's clock: what waits too long, and what has no known first send."""

from typing import Final

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, warning
from idem.cli.doctor.queue import MOST
from idem.outbox.domain.contract import Contract
from idem.outbox.values.plural import several

DAY: Final = 86400.0

# Times of changes and claims are never ahead in normal operation. A next look-up is, by the wait of its contract.
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
    """The longest wait for the next look-up of a row, in seconds, including the random part."""
    steps = (*contract.schedule, *contract.pending_schedule, 60 * contract.schedule[0], contract.retry_after_cap, DAY)
    return 2 * max(*steps, contract.flight_limit + contract.pause_allowance + contract.lookup.horizon)


async def times_ahead(examination: Examination) -> Findings:
    """Check whether the database's clock was ahead when open rows were written, or is behind now."""
    contracts = [] if examination.configuration is None else examination.configuration.providers.values()
    longest = max((longest_wait(provider.contract) for provider in contracts), default=30 * DAY)
    found = await examination.one(AHEAD, {"longest": longest, "most": MOST})
    if found["rows"]:
        leases = f"; {several(found['claimed'], 'of them is', 'of them are')} claimed" if found["claimed"] else ""
        yield error(
            f"{several(found['rows'], 'open row was', 'open rows were')} written at a time ahead of the "
            f"database's clock, by at most {age(found['ahead'])}{leases}. Their leases and waits end that much "
            "later, and no daemon claims these rows before then",
            "If the clock is behind now, correct it. If it was ahead, run `idem reconcile --now` to ask about "
            "unknown and awaiting rows; leases and queued rows wait (docs/databases.md, The server's clock)",
        )
    if found["unknown"]:
        yield warning(
            f"idem does not know when {several(found['unknown'], 'open row was', 'open rows were')} first sent: "
            "the time is ahead of the database's clock. idem does not replay them, and a list since then cannot "
            "prove absence",
            "Look-ups by key or reference settle them. For the others check the provider's console: `idem "
            "unknowns list`, `idem dlq list`",
        )
