"""The lanes of a configuration, by name: one for each (provider, account) that an operation uses."""

from dataclasses import dataclass

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.terms import Terms


@dataclass(frozen=True, slots=True)
class LaneScope:
    """The scope of a claim. A row of another account, origin or environment cannot be claimed through it.

    `concurrency`: calls of the fleet at a time, exceeded by no batch where it is `exact`; `asking`: how many of them
    look-ups and replays may take together. `memory`: seconds for which a second send is harmless, 0: never. `steps`:
    those of flows, each as the operation's name, a space, and its own.
    """

    provider: str
    account: str
    origin: str
    environment: str
    operations: tuple[str, ...]
    concurrency: int | None = None
    exact: bool = False
    asking: int | None = None
    memory: float = 0.0
    steps: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls that its rows make, by the names that `OutboxRow.call` gives them."""
        return (*self.operations, *self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """The operations of these calls."""
        return (*self.operations, *sorted({step.partition(" ")[0] for step in self.steps}))


def lane_scopes(catalogue: Catalogue) -> dict[tuple[str, str], tuple[LaneScope, dict[str, Terms]]]:
    """The lanes of a configuration: one for each (provider, account) that an operation calls, with the terms of each
    call by its name (`OutboxRow.call`)."""
    lanes: dict[tuple[str, str], tuple[LaneScope, dict[str, Terms]]] = {}
    for call in (each for operation in catalogue.operations.values() for each in operation.calls):
        if call.provider == LOCAL:
            continue
        contract = catalogue.providers[call.provider].contract
        key = (call.provider, call.account)
        terms = {**(lanes[key][1] if key in lanes else {}), call.call: Terms(contract, call)}
        lane = LaneScope(
            provider=call.provider,
            account=call.account,
            origin=catalogue.providers[call.provider].accounts[call.account].origin,
            environment=catalogue.environment,
            operations=tuple(sorted(name for name, each in terms.items() if each.operation.step is None)),
            concurrency=contract.limits.concurrency,
            exact=contract.limits.exact,
            asking=contract.limits.asking,
            memory=contract.memory,
            steps=tuple(sorted(name for name, each in terms.items() if each.operation.step is not None)),
        )
        lanes[key] = (lane, terms)
    return lanes
