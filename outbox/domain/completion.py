"""When a key is complete: what a proof means for its operation (`completes_when`). Pure.

A proof says what the provider has; whether that is the end for the client is the operation's to say. Proofs are stored
as they were seen, and read here, under the terms of the moment, each time one of them is applied.
"""

from typing import Any, Literal, TypeAlias

from idem.outbox.domain.contract import Contract
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.outcomes import Pending, Proof, Refused, Succeeded

CompletesWhen: TypeAlias = Literal["exists", "final"]


def completes_when(said: CompletesWhen | None, contract: Contract) -> CompletesWhen:
    """What holds for an operation of this provider; `said` is its own setting, None where it has none."""
    return said or ("exists" if contract.answers else "final")


def is_open(proof: Proof) -> bool:
    """Whether the object has not come to its end: the provider is working, or waits for its customer."""
    return isinstance(proof, Pending) or (isinstance(proof, Succeeded) and proof.interim)


def meaning(operation: OperationSpec, proof: Proof, *, answered: bool = True) -> Proof:
    """What a proof means: a `Succeeded` or `Refused` completes the key, a `Pending` waits as `awaiting`.

    An end is an end. What is open completes the key where the operation completes when the object exists; but not
    without an answer (`answered` False: it was found under other terms), because there would be nothing to store.
    """
    match proof:
        case Pending() if operation.completes_when == "exists" and answered:
            return Succeeded(proof.reference, proof.status, proof.fields, interim=True)
        case Succeeded(interim=True) if operation.completes_when == "final" or not answered:
            return Pending(proof.reference, proof.status, proof.fields)
        case Pending() | Succeeded() | Refused():
            return proof


def default_interim(working: Pending) -> dict[str, Any]:
    """The interim answer about an object that is not at its end, where the operation does not give one."""
    return {"reference": working.reference, "status": working.status}
