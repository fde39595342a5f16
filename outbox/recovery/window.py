"""Until when a row may be sent that lost commits may have sent before: one rule for all who send.

`outbox.doubted_since` is the earliest moment at which a call that the database has forgotten may have left. A second
send is harmless only while the provider is sure to remember the key, counted from that moment. The claim asks for this
in its statement, a claim's `first_sent_at` begins there, so that every replay's guard counts from there too, and what
is past it becomes `unknown` (`idem.sweeper.doubted`).
"""

from __future__ import annotations

from idem.outbox.change import Row
from idem.outbox.terms import Terms

# For a row `c`; %(window)s is the contract's own window, 0 where it allows no replay.
MAY_BE_SENT = """coalesce(c.doubted_since > statement_timestamp()
                       - make_interval(secs => least(c.replay_window, %(window)s::float8)), true)"""

# The end of that time, for a row `o`.
FORGOTTEN_AT = "o.doubted_since + make_interval(secs => least(o.replay_window, %(window)s::float8))"


def time_left(row: Row, terms: Terms) -> float | None:
    """Seconds for which a doubted row may still be sent; None: it is not doubted; 0 or less: no more.

    Both windows count: what the provider promised when the row was accepted, and what it promises now. Of an
    operation that this process does not know, only the first is known.
    """
    if row.doubted_for is None:
        return None
    if row.inline:
        # Whether the caller's own code sends the provider's key is not known here.
        return 0.0
    window = float(row.replay_window)
    if terms.known:
        window = min(window, terms.contract.replay_window if terms.contract.replays else 0.0)
    return window - row.doubted_for
