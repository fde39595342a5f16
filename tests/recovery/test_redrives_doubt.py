"""What an operator sends again on a word alone is sent only while the provider remembers the first send."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from fix_restore import MEMORY, Restorable

from idem.outbox import operator
from idem.outbox.recovery import guard, release

WINDOW = MEMORY - 180
"""`fix_spine.KEYED`: what it remembers, less its margin."""


async def act(restorable: Restorable, what: str, intent: UUID) -> None:
    spine = restorable.spine
    version = (await spine.one("SELECT version FROM idem.intents WHERE id = %(i)s", i=intent))["version"]
    async with spine.database.connection() as connection:
        await getattr(operator, what)(connection, spine.catalogue, intent, by="ann", reason="wanted", version=version)


async def sent_and_lost(restorable: Restorable) -> UUID:
    """A call that was carried out; its answer was lost, and the provider cannot be asked."""
    spine = restorable.spine
    keyed = spine.catalogue.providers["keyed"]
    blind = replace(keyed.contract, lookup=replace(keyed.contract.lookup, by_key=False, by_id=False))
    known = dict(spine.catalogue.operations)
    known["pay.keyed"] = replace(known["pay.keyed"], start_within=None, give_up_after=10 * MEMORY, retry="client")
    providers = {**spine.catalogue.providers, "keyed": replace(keyed, contract=blind, lookups=())}  # type: ignore[type-var]
    spine.catalogue = replace(spine.catalogue, operations=known, providers=providers)
    spine.acceptor._operations, spine.acceptor._providers = known, providers
    intent = spine.accepted()
    await sends_again(restorable)
    await restorable.pass_time(400)
    return intent


async def sends_again(restorable: Restorable) -> None:
    """One send whose answer is lost."""
    restorable.spine.bank.script(None, ["act_then_drop"])
    await restorable.spine.work()
    assert restorable.spine.effects() == 1


async def test_a_redrive_of_what_rests_on_a_word_goes_on_counting_from_the_first_send(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_and_lost(restorable)
    await act(restorable, "resolve_failed", intent)
    await restorable.pass_time(WINDOW - 4000)
    await act(restorable, "redrive", intent)
    await sends_again(restorable)
    since = await spine.one(
        "SELECT o.first_sent_at = n.created_at AS first FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id"
    )
    assert since["first"]
    await restorable.pass_time(2 * 3600)
    await spine.reconcile(hasten=True)
    assert spine.effects() == 1, "no replay after the provider has forgotten the first send"


async def fail_over(restorable: Restorable) -> None:
    """A daemon notices another timeline."""
    spine = restorable.spine
    async with spine.database.connection() as connection:
        await connection.execute("UPDATE idem.installation SET timeline = 99")
        await guard.Guard(spine.catalogue, "single")(connection)


async def lossless(restorable: Restorable) -> int:
    async with restorable.spine.database.connection() as connection:
        return await release.lossless(connection, restorable.spine.catalogue, by="ann", reason="a planned move")


async def test_lossless_does_not_end_the_doubt_that_a_redrive_began(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_and_lost(restorable)
    await restorable.pass_time(WINDOW - 4000)
    await act(restorable, "redrive", intent)
    await fail_over(restorable)
    await lossless(restorable)
    row = await spine.row(intent) or {}
    assert (row["status"], row["doubted_since"] is not None) == ("pending", True)
    await sends_again(restorable)
    await restorable.pass_time(2 * 3600)
    await spine.reconcile(hasten=True)
    assert spine.effects() == 1


async def test_lossless_does_not_send_what_was_redriven_and_not_sent_in_time(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_and_lost(restorable)
    await act(restorable, "redrive", intent)
    await restorable.pass_time(MEMORY)
    await restorable.sweep()
    assert await lossless(restorable) == 0
    assert (await spine.row(intent) or {})["status"] == "unknown"
    await spine.work()
    assert spine.effects() == 1
