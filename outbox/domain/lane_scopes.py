"""The lanes of a configuration, by name: one for each (provider, account) that an operation uses."""

from dataclasses import dataclass

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.terms import Terms


@dataclass(frozen=True, slots=True)
class LaneScope:
    """The scope of a claim. A row of another account, origin or environment cannot be claimed through it.

    `concurrency`: calls of the fleet at a time, exceeded by no batch where it is `exact`; `asking`: how many of them
    look-ups and replays may take together. `memory`: seconds for which a second send is harmless, 0: never.
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


def lane_scopes(catalogue: Catalogue) -> dict[tuple[str, str], tuple[LaneScope, dict[str, Terms]]]:
    """The lanes of a configuration: one for each (provider, account) that an operation calls."""
    lanes: dict[tuple[str, str], tuple[LaneScope, dict[str, Terms]]] = {}
    for operation in catalogue.operations.values():
        if operation.provider == LOCAL:
            continue
        contract = catalogue.providers[operation.provider].contract
        key = (operation.provider, operation.account)
        terms = {**(lanes[key][1] if key in lanes else {}), operation.name: Terms(contract, operation)}
        lane = LaneScope(
            provider=operation.provider,
            account=operation.account,
            origin=catalogue.providers[operation.provider].accounts[operation.account].origin,
            environment=catalogue.environment,
            operations=tuple(sorted(terms)),
            concurrency=contract.limits.concurrency,
            exact=contract.limits.exact,
            asking=contract.limits.asking,
            memory=contract.memory,
        )
        lanes[key] = (lane, terms)
    return lanes
