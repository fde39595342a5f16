"""What one process knows: its operations, its providers, and the name of its environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from idem.outbox.domain.contract import Contract, ProviderRequest
from idem.outbox.domain.operation import Answer, FinalOutcome, OperationSpec
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.provider import Provider
from idem.outbox.domain.terms import Terms
from idem.outbox.values.errors import ConfigError, Unrenderable
from idem.outbox.values.suggestions import nearest

LONGEST_FLIGHT = 86400.0
"""Seconds: the flight limit of a provider that is not known here. Longer than any contract's, because by the quiet time
that is written with it a daemon which knows the provider believes "not found"."""

WRITTEN = (
    'Define operations in idem.toml, in [operations."NAME"], or in the application that `app` in idem.toml, IDEM_APP '
    "or --app names"
)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The operations and providers of a configuration. A row of anything else is left to a daemon that knows it."""

    environment: str
    providers: Mapping[str, Provider]
    operations: Mapping[str, OperationSpec]

    @property
    def memories(self) -> dict[str, float]:
        """Seconds for which each provider remembers a key by its contract now, less the margin; 0: not at all."""
        return {name: provider.contract.memory for name, provider in self.providers.items()}

    @property
    def known_calls(self) -> list[OperationSpec]:
        """Each step of each flow, local ones too, and each operation of one call."""
        return [each for operation in self.operations.values() for each in operation.steps or (operation,)]

    def terms(self, operation: str, provider: str, step: str | None = None) -> Terms | None:
        """Contract and operation that a row is decided under; None where this process does not know one of them.

        The contract is that of the row's provider: its operation may have been pointed to another one since, and what
        was sent is judged by the waits, memory and look-ups of the provider that has it.
        """
        known, one = self.operations.get(operation), self.providers.get(provider)
        known = None if known is None else known.at(step)
        return None if known is None or one is None else Terms(one.contract, known)

    def of(self, row: OutboxRow) -> Terms | None:
        """The same of a row."""
        return self.terms(row.operation, row.provider, row.step_name)

    def require(self, operation: str, step: str | None = None) -> Terms:
        """The terms of what is accepted under the operation of a row; raises ConfigError that names the operation.

        Text from outside is checked with `named`: a name without a row may be misspelt.
        """
        known = self.operations.get(operation)
        if known is None:
            raise ConfigError(
                f"operations.{operation}: the database has rows of this operation, but it is not configured here; use "
                "the idem.toml with which they were accepted"
            )
        if step is None and known.steps:
            known = known.steps[0]
        found = known if step is None else known.at(step)
        if found is None:
            raise ConfigError(
                f"operations.{operation}: the database has rows of its step {step}, which its definition here does not "
                "have; use the definition with which they were accepted"
            )
        return Terms(self.providers[found.provider].contract, found)

    def named(self, operation: str) -> Terms:
        """The terms of an operation that a text from outside names; raises ConfigError with the names that are near."""
        if operation not in self.operations:
            raise ConfigError(
                f"operation: no operation {operation!r} is configured. {WRITTEN}. {nearest(operation, self.operations)}"
            )
        return self.require(operation)

    def sendable(self, row: OutboxRow) -> Terms:
        """The terms of a row that is to be sent again; raises ConfigError where no worker here would send it."""
        terms, provider = self.require(row.operation, row.step_name), row.provider
        if terms.operation.provider != provider:
            raise ConfigError(
                f"operations.{row.operation}: the call was made for provider {provider}, but the operation now uses "
                f"{terms.operation.provider}: no worker would send it. Configure {provider} for it again, or resolve "
                "the intent"
            )
        return terms

    def cautious(self, operation: str, provider: str, step: str | None = None) -> Terms:
        """The terms of a row, or for one that is not known here the longest waits and no judgement (IB-023).

        Where one of operation and provider is not known the other may still be, and counts.
        """
        if terms := self.terms(operation, provider, step):
            return terms
        one, known = self.providers.get(provider), self.operations.get(operation)
        known = None if known is None else known.at(step)
        contract = Contract(provider, flight_limit=LONGEST_FLIGHT) if one is None else one.contract
        return Terms(contract, known or _unconfigured(operation, provider), known=False)

    def cautious_of(self, row: OutboxRow) -> Terms:
        """The same of a row."""
        return self.cautious(row.operation, row.provider, row.step_name)


def _unconfigured(operation: str, provider: str) -> OperationSpec:
    def refuse(*_: Any) -> NoReturn:
        raise Unrenderable(f"operation {operation} is not configured here")

    def request(params: Any) -> ProviderRequest:
        refuse(params)

    def answer(outcome: FinalOutcome, intent: str) -> Answer:
        refuse(outcome, intent)

    return OperationSpec(operation, provider, "", validate=refuse, request=request, answer=answer)
