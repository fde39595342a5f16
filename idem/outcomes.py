"""What a call or a look-up shows: it happened, it was refused, nothing happened, or it is not known.

`Outcome` is the union of what a call may show, `LookupOutcome` of what a look-up may show.
"""

from idem.outbox.domain.outcomes import Absent as Absent
from idem.outbox.domain.outcomes import Ambiguous as Ambiguous
from idem.outbox.domain.outcomes import CouldNotAsk as CouldNotAsk
from idem.outbox.domain.outcomes import LookupOutcome as LookupOutcome
from idem.outbox.domain.outcomes import NotExecuted as NotExecuted
from idem.outbox.domain.outcomes import Outcome as Outcome
from idem.outbox.domain.outcomes import Pending as Pending
from idem.outbox.domain.outcomes import Refused as Refused
from idem.outbox.domain.outcomes import Succeeded as Succeeded
