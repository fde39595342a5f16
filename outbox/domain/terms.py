"""Under which terms a row is decided: its provider's contract and its operation."""

from dataclasses import dataclass
from typing import Literal

from idem.outbox.domain.contract import LOCAL, Contract
from idem.outbox.domain.operation import OperationSpec


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which contract and for which operation a row is decided.

    `known` is False in a daemon whose configuration lacks the row's operation: it decides nothing that depends on it.
    """

    contract: Contract
    operation: OperationSpec
    known: bool = True

    @property
    def settleable(self) -> bool:
        """Whether idem can find out by itself what became of an unknown row of this provider."""
        contract = self.contract
        if contract.provider == LOCAL:
            return False
        # What the caller's own code has sent is never sent again by us.
        acts = self.operation.kind != "inline" and (contract.replays or contract.cancel is not None)
        return not self.known or acts or contract.lookup.possible or contract.events_settle

    @property
    def standing_order(self) -> Literal["assume_done", "assume_not_done"] | None:
        """The outcome that a standing order assumes for a row that idem cannot settle; None: an operator decides."""
        order = self.contract.on_unsettleable
        return None if order == "operator" or not self.known else order
