"""What one process knows: its operations, its providers, and the name of its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from idem.outbox.contract import Contract, ProviderRequest
from idem.outbox.errors import ConfigError, Unrenderable
from idem.outbox.operation import Answer, Final, Operation
from idem.outbox.provider import Provider
from idem.outbox.terms import Terms

LONGEST_FLIGHT = 86400.0
"""Seconds: the flight limit of a provider that is not known here. Longer than any contract's, because by the quiet time
that is written with it a daemon which knows the provider believes "not found"."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The operations and providers of a configuration. A row of anything else is left to a daemon that knows it."""

    environment: str
    providers: Mapping[str, Provider]
    operations: Mapping[str, Operation]

    def terms(self, operation: str) -> Terms | None:
        """Contract and operation that a row is decided under; None where this process does not know it."""
        known = self.operations.get(operation)
        return None if known is None else Terms(self.providers[known.provider].contract, known)

    def require(self, operation: str) -> Terms:
        """The same; raises ConfigError that names the operation."""
        terms = self.terms(operation)
        if terms is None:
            raise ConfigError(
                f"operations.{operation}: rows of this operation are in the database, but it is not configured here; "
                "use the idem.toml that it was accepted with"
            )
        return terms

    def cautious(self, operation: str, provider: str) -> Terms:
        """The terms of a row, or for one that is not known here the longest waits and no judgement (IB-023).

        Of an operation that is defined elsewhere the provider may still be known, and its contract with it.
        """
        if terms := self.terms(operation):
            return terms
        known = self.providers.get(provider)
        contract = Contract(provider, flight_limit=LONGEST_FLIGHT) if known is None else known.contract
        return Terms(contract, _nobody(operation, provider), known=False)


def _nobody(operation: str, provider: str) -> Operation:
    def refuse(*_: Any) -> NoReturn:
        raise Unrenderable(f"operation {operation} is not configured here")

    def request(params: Any) -> ProviderRequest:
        refuse(params)

    def answer(outcome: Final, intent: str) -> Answer:
        refuse(outcome, intent)

    return Operation(operation, provider, "", validate=refuse, request=request, answer=answer)
