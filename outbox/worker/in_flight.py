"""A claim that a worker holds, from the moment it has it to the end of its call."""

import math
from typing import Literal

from idem.outbox.domain.terms import Terms
from idem.outbox.worker.claim import Claim
from idem.outbox.worker.sender import Sender


class InFlight:
    """A claim in this process. "Started" and "given back" are one compare-and-set: only one of them acts."""

    def __init__(self, claimed: Claim, terms: Terms, sender: Sender) -> None:
        self.claimed, self.terms, self._sender = claimed, terms, sender
        self.state: Literal["held", "started", "given_back"] = "held"
        self.calling = True
        """The call has not ended, as far as the lane knows."""
        self.waited_for = math.inf
        """Until when the end of this process waits for it, on the boot clock: one whose lease is over is left."""

    def start(self) -> bool:
        """Taken by the last check before the first byte; False if the claim was given back, or if what would leave has
        another sender than the claim has put on record: a token that was renewed since."""
        if self.state == "held" and self._sender.is_now(self.claimed.sent_as):
            self.state = "started"
        return self.state == "started"

    def give_back(self) -> bool:
        """Taken by the shutdown; False if the call has begun."""
        if self.state == "held":
            self.state = "given_back"
            return True
        return False
