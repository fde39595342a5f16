"""How much of the provider's memory is left for a row: one rule for sends, replays and reports.

A second send is harmless only while the provider is sure to remember the key, counted from the earliest moment at which
a first one may have left: `outbox.first_sent_at`, or `outbox.doubted_since` of a call that the database has forgotten.
Where only an operator's word says that a send did not happen, it is `outbox.denied_sent_at` (docs/decisions/0028).
The smaller of two windows counts: what the provider promised when the row was accepted, and what its contract states
now. Statements ask `idem.memory_left`, Python asks `memory_left`. A moment that lies ahead of the database's clock
counts as not known: its age is infinite, and nothing is left (`idem.outbox.settle.clock_ahead`).

A doubted row is sent inside that time only. The claim asks for this in its statement, a claim's `first_sent_at` begins
with the doubt, so that every replay counts from there too, and what is past it becomes `unknown`
(`idem.sweeper.doubted`).
"""

import math

from idem.outbox.domain.contract import Contract, FrozenRequest
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.terms import Terms
from idem.outbox.providers import request_parts

# For a queued row `c`; %(window)s is the contract's own window (`Contract.memory`).
MAY_BE_SENT = "coalesce(idem.memory_left(NULL, c.doubted_since, c.replay_window, %(window)s) > 0, true)"

# What is left of that time, for a row `o`; NULL: it is not doubted.
MEMORY_LEFT = "idem.memory_left(NULL, o.doubted_since, o.replay_window, %(window)s)"

# The beginning of the memory of what a claim sends, for a row `o`: while the provider is sure to remember an earlier
# send, which a doubt or an operator's word speaks of, this one is answered from that memory. By the promise alone: a
# contract that is stated shorter for a while does not end what the provider remembers. A moment that is not known goes
# on: how long the provider remembers that send is not known either.
MEMORY_BEGINS = """coalesce(o.first_sent_at, o.doubted_since,
                                    CASE WHEN idem.memory_left(NULL, o.denied_sent_at, o.replay_window, NULL) > 0
                                              OR idem.is_ahead(o.denied_sent_at)
                                         THEN o.denied_sent_at END, statement_timestamp())"""

# As whom what a claim sends is sent, for a row `o`. All before it is proven not executed, unless a doubt or an
# operator's word speaks of a send that may count still: that one's sender stays, and no other may send it again.
SENT_AS = """CASE WHEN o.doubted_since IS NULL AND o.denied_sent_at IS NULL THEN %(sent_as)s::bigint
                                ELSE coalesce(o.sent_as, %(sent_as)s::bigint) END"""


def memory_left(promised: float, age: float | None, contract: Contract | None) -> float | None:
    """Seconds for which the provider is still sure to remember what was sent `age` seconds ago under a row's key.

    The Python twin of `idem.memory_left`. `promised`: seconds, when the row was accepted; `contract`: what holds now,
    None where it is not known here. None: nothing was sent; 0 or less: it need not remember it any more, or
    it is not known when that was (`age` is infinite).
    """
    if age is None:
        return None
    return (promised if contract is None else min(promised, contract.memory)) - age


def time_left(row: OutboxRow, terms: Terms) -> float | None:
    """Seconds for which a doubted row may still be sent; None: it is not doubted; 0 or less: no more.

    Of an operation that this process does not know, only the window of the row is known.
    """
    if row.doubted_for is None:
        return None
    if row.inline:
        # Whether the caller's own code sends the provider's key is not known here.
        return 0.0
    return memory_left(row.replay_window, row.memory_age, terms.contract if terms.known else None)


def send_by(allowed: float, row: OutboxRow, request: FrozenRequest, contract: Contract) -> float:
    """Until when a claimed row may leave, on the boot clock; `allowed` by the times. Never, where lost commits may have
    sent it before and its request does not carry the key as the contract of now says: it would not be recognised."""
    if math.isinf(allowed) or request_parts.carried(request, contract.key, row.provider_key):
        return allowed
    return -math.inf
