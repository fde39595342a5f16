"""An open outbox row as an operator's guards see it."""

from dataclasses import dataclass
from uuid import UUID

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outbox_row import OutboxRow, StoredProof
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.terms import Terms
from idem.outbox.providers import request_parts
from idem.outbox.settle import replay_window
from idem.outbox.settle.endings import flight_left


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An open outbox row with everything that an operator's guards need."""

    row: OutboxRow
    stored: tuple[StoredProof, ...]  # proofs that are not applied yet
    inline: bool
    lease_left: float | None  # seconds left of the claim of a worker or reconciler; None: no claim
    key_state: str | None  # None: the key no longer exists
    hints: tuple[UUID, ...] = ()  # events about it that are not confirmed yet
    # Seconds since the earliest possible first send under its provider key, from which the memory of the provider
    # counts.
    memory_age: float = 0.0
    # Only an operator's statement says that what was sent under this key did not happen; nothing has proven it since.
    operator_said_not_sent: bool = False
    refused_as_it_is: bool = False  # the provider has refused the frozen request itself: an open `rejected` says so
    request: FrozenRequest | None = None  # the request under the current provider key; None if it was never rendered

    def carried(self, terms: Terms) -> bool:
        """Whether the request carries the key where the provider's current contract expects it."""
        return (
            self.request is None
            or self.inline
            or request_parts.carried(self.request, terms.contract.key, self.row.provider_key)
        )

    def quiet_left(self, terms: Terms) -> float:
        """Seconds for which a request of this row may still act at the provider; 0 or less if none can."""
        row, contract = self.row, terms.contract
        longest = contract.flight_limit + contract.pause_allowance
        # A row that became unknown without the end of a claim (Recovery) has no quiet time of its own.
        left = row.quiet_left if row.quiet_left is not None else longest - row.status_age
        if row.status is OutboxStatus.UNKNOWN:
            left = max(left, flight_left(row, contract))
        if self.lease_left is not None:
            # A claim of a reconciler that died may have been a replay (the next claim would raise the quiet time by
            # this).
            left = max(left, self.lease_left + longest)
        return left

    def window_left(self, terms: Terms) -> float:
        """Seconds for which the provider still answers a second call under the same key from its memory; 0 if it does
        not.
        """
        row = self.row
        if row.key_burned or row.inline or not self.carried(terms):
            # idem does not know whether the caller's own code sends the provider's key.
            return 0.0
        return max(0.0, replay_window.memory_left(row.replay_window, self.memory_age, terms.contract) or 0.0)
