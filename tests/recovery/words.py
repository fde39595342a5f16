"""What rests on an operator's word alone: a call that was carried out, whose answer was lost."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from fix_restore import MEMORY, Restorable
from fix_spine import Spine

WINDOW = MEMORY - 180
"""`fix_spine.KEYED`: what it remembers, less its margin."""


def use(spine: Spine, lookups: bool = True, **operation: Any) -> None:
    """Change the keyed operation, and whether its provider can be asked."""
    if not lookups:
        rule = replace(spine.provider().contract.lookup, by_key=False, by_id=False)
        spine.change("keyed", contract=replace(spine.provider().contract, lookup=rule), lookups=())
    spine.operate("pay.keyed", **operation)
    spine.acceptor.operations, spine.acceptor.providers = spine.catalogue.operations, spine.catalogue.providers


async def sent_and_lost(restorable: Restorable, *, acted: bool = True) -> UUID:
    """A call whose answer was lost, and the provider cannot be asked; it was carried out where it `acted`."""
    use(restorable.spine, lookups=False, start_within=None, give_up_after=10 * MEMORY, retry="client")
    intent = restorable.spine.accepted()
    await sends_again(restorable, acted=acted)
    await restorable.pass_time(400)
    return intent


async def sends_again(restorable: Restorable, *, acted: bool = True) -> None:
    """One send whose answer is lost."""
    await restorable.spine.work(faults=["act_then_drop" if acted else "drop_before_acting"])
    assert restorable.spine.effects() == int(acted)
