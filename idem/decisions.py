"""What `accept` decides about a request. `Decision` is their union, so that a `match` over it is total."""

from idem.outbox.domain.decisions import Accepted as Accepted
from idem.outbox.domain.decisions import Decision as Decision
from idem.outbox.domain.decisions import Expired as Expired
from idem.outbox.domain.decisions import InProgress as InProgress
from idem.outbox.domain.decisions import Mismatch as Mismatch
from idem.outbox.domain.decisions import NeedsOperator as NeedsOperator
from idem.outbox.domain.decisions import Replay as Replay
from idem.outbox.domain.decisions import Retrying as Retrying
from idem.outbox.domain.decisions import Unknown as Unknown
