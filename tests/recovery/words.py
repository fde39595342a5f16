"""What rests on an operator's word alone: a call that was carried out, whose answer was lost."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from fix_restore import MEMORY, Restorable

from idem.outbox.operator import actions
from idem.outbox.recovery import guard, release

WINDOW = MEMORY - 180
"""`fix_spine.KEYED`: what it remembers, less its margin."""


async def act(restorable: Restorable, what: str, intent: UUID, **options: Any) -> None:
    """What an operator does."""
    spine = restorable.spine
    version = (await spine.one("SELECT version FROM idem.intents WHERE id = %(i)s", i=intent))["version"]
    async with spine.database.connection() as connection:
        await getattr(actions, what)(
            connection, spine.catalogue, intent, by="ann", reason="wanted", version=version, **options
        )


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


async def fail_over(restorable: Restorable) -> None:
    """A daemon notices another timeline."""
    spine = restorable.spine
    async with spine.database.connection() as connection:
        await connection.execute("UPDATE idem.installation SET timeline = 99")
        await guard.Guard(spine.catalogue, "single")(connection)


async def lossless(restorable: Restorable) -> release.Released:
    async with restorable.spine.database.connection() as connection:
        return await release.lossless(connection, restorable.spine.catalogue, by="ann", reason="a planned move")
