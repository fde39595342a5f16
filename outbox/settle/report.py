"""What the holder of a claim reports of its call."""

import dataclasses
from dataclasses import dataclass
from typing import Any, assert_never
from uuid import uuid4

from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import OutboxRow, StoredProof
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Refused, Seen, Succeeded
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter
from idem.outbox.settle import decide


@dataclass(slots=True)
class Report:
    """What the holder of a claim saw. `answer` or `interim` is rendered for a proof; `letter` if the answer failed.

    Every call makes one, hence it is not frozen.
    """

    row: OutboxRow
    outcome: Outcome
    seen: Seen
    terms: Terms
    answer: Answer | None = None
    letter: DeadLetter | None = None
    interim: Any = None

    def change(self, row: OutboxRow | None = None) -> Change:
        """The change that this report wants, as long as no stored proof speaks of the row.

        `row`: as it is under its lock, where it may have been doubted since it was claimed.
        """
        known = self.row if row is None else dataclasses.replace(self.row, doubted_for=row.doubted_for)
        change = decide.report(known, self.outcome, self.seen, self.answer, self.terms, self.interim)
        return change if self.letter is None else dataclasses.replace(change, letters=(*change.letters, self.letter))

    def proof(self) -> StoredProof | None:
        """The report as a proof, if it is one."""
        match self.outcome:
            case Succeeded() | Refused() | Pending():
                status, attempt = self.seen.http_status, self.row.attempt
                return StoredProof(uuid4(), self.row.caller, self.outcome, self.answer, status, attempt, self.interim)
            case NotExecuted() | Ambiguous():
                return None
            case _ as unlisted:
                assert_never(unlisted)
