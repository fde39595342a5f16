"""What an operator sends again on a word alone is sent only while the provider remembers the first send."""

from fix_restore import MEMORY, Restorable, lossless, notices
from recovery.words import WINDOW, sends_again, sent_and_lost


async def test_a_redrive_of_what_rests_on_a_word_goes_on_counting_from_the_first_send(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_and_lost(restorable)
    await restorable.spine.act("resolve_failed", intent)
    await restorable.pass_time(WINDOW - 4000)
    await restorable.spine.act("redrive", intent)
    await sends_again(restorable)
    since = await spine.one(
        "SELECT first_sent_at = doubted_since AND first_sent_at = denied_sent_at AS first FROM idem.outbox"
    )
    assert since["first"]
    await restorable.pass_time(2 * 3600)
    await spine.reconcile(hasten=True)
    assert spine.effects() == 1, "no replay after the provider has forgotten the first send"


async def test_lossless_does_not_end_the_doubt_that_a_redrive_began(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_and_lost(restorable)
    await restorable.pass_time(WINDOW - 4000)
    await restorable.spine.act("redrive", intent)
    await notices(restorable.spine, timeline=99)
    await lossless(restorable.spine)
    row = await spine.row(intent) or {}
    assert (row["status"], row["doubted_since"] is not None) == ("pending", True)
    await sends_again(restorable)
    await restorable.pass_time(2 * 3600)
    await spine.reconcile(hasten=True)
    assert spine.effects() == 1


async def test_lossless_does_not_send_what_was_redriven_and_not_sent_in_time(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_and_lost(restorable)
    await restorable.spine.act("redrive", intent)
    await restorable.pass_time(MEMORY)
    await restorable.sweep()
    assert (await lossless(restorable.spine)).rows == 0
    assert await spine.status(intent) == "unknown"
    assert await spine.works() == 1
