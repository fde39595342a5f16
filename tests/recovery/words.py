"""What rests on an operator's word alone: a call that was carried out, whose answer was lost."""

from dataclasses import replace
from uuid import UUID

from fix_restore import MEMORY, Restorable

WINDOW = MEMORY - 180
"""`fix_spine.KEYED`: what it remembers, less its margin."""


async def sent_and_lost(restorable: Restorable, *, acted: bool = True) -> UUID:
    """A call whose answer was lost, and the provider cannot be asked; it was carried out where it `acted`."""
    spine = restorable.spine
    keyed = spine.catalogue.providers["keyed"]
    blind = replace(keyed.contract, lookup=replace(keyed.contract.lookup, by_key=False, by_id=False))
    known = dict(spine.catalogue.operations)
    known["pay.keyed"] = replace(known["pay.keyed"], start_within=None, give_up_after=10 * MEMORY, retry="client")
    providers = {**spine.catalogue.providers, "keyed": replace(keyed, contract=blind, lookups=())}  # type: ignore[type-var]
    spine.catalogue = replace(spine.catalogue, operations=known, providers=providers)
    spine.acceptor.operations, spine.acceptor.providers = known, providers
    intent = spine.accepted()
    await sends_again(restorable, acted=acted)
    await restorable.pass_time(400)
    return intent


async def sends_again(restorable: Restorable, *, acted: bool = True) -> None:
    """One send whose answer is lost."""
    await restorable.spine.work(faults=["act_then_drop" if acted else "drop_before_acting"])
    assert restorable.spine.effects() == int(acted)
