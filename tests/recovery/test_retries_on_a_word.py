"""After an operator's word, "it did not happen", the provider's memory goes on counting from what the word is about."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fix_restore import MEMORY, Restorable, lossless, notices
from fix_spine import catalogue
from recovery.words import WINDOW, sends_again, sent_and_lost
from settling.shop import use

from idem.decisions import Replay, Retrying


async def row(restorable: Restorable) -> dict[str, Any]:
    """The open row; `from_the_word`: the memory of its claim begins where the word begins."""
    return await restorable.spine.one(
        "SELECT status, provider_key::text AS provider_key, first_sent_at, denied_sent_at, doubted_since,"
        " coalesce(first_sent_at = denied_sent_at, false) AS from_the_word FROM idem.outbox"
    )


def retry(restorable: Restorable) -> None:
    assert isinstance(restorable.spine.accept(), Retrying)


async def sent_on_the_word(restorable: Restorable) -> None:
    """A retry inside the memory of the first send, whose answer is lost as well."""
    await restorable.pass_time(WINDOW - 4000)
    retry(restorable)
    await sends_again(restorable)


async def nothing_more_is_sent(restorable: Restorable, intent: UUID) -> None:
    """The provider has forgotten the first send; whatever the reconciler does, it makes no second effect."""
    spine = restorable.spine
    sends = len(spine.bank.log.sends())
    await restorable.pass_time(2 * 3600)
    for _ in range(3):
        await spine.reconcile(hasten=True)
        await spine.work()
        await restorable.sweep()
    assert len(spine.bank.log.sends()) == sends
    assert spine.effects() == 1
    assert await spine.letters(intent), "a person is called (P5)"


async def test_a_retry_inside_the_memory_goes_on_counting_from_the_first_send(restorable: Restorable) -> None:
    """The word was wrong, the client retries, and the answer of that is lost as well."""
    intent = await sent_and_lost(restorable)
    first = (await row(restorable))["first_sent_at"]
    await restorable.spine.act("resolve_failed", intent)
    assert (await row(restorable))["denied_sent_at"] == first
    await sent_on_the_word(restorable)
    assert (await row(restorable))["from_the_word"]
    await nothing_more_is_sent(restorable, intent)


async def test_an_attempt_that_did_not_leave_changes_nothing_about_it(restorable: Restorable) -> None:
    intent = await sent_and_lost(restorable)
    await restorable.spine.act("resolve_failed", intent)
    await restorable.pass_time(WINDOW - 4000)
    retry(restorable)
    await restorable.spine.work(faults=["401"])
    found = await row(restorable)
    assert (found["status"], found["first_sent_at"]) == ("pending", None)
    await restorable.pass_time(600)
    await sends_again(restorable)
    assert (await row(restorable))["from_the_word"]
    await nothing_more_is_sent(restorable, intent)


async def test_a_retry_after_the_memory_is_sent_on_the_word_and_has_a_memory_of_its_own(restorable: Restorable) -> None:
    """The word was right. What is sent then is replayed as any other call."""
    spine = restorable.spine
    await restorable.spine.act("resolve_failed", await sent_and_lost(restorable, acted=False))
    await restorable.pass_time(MEMORY)
    retry(restorable)
    await sends_again(restorable)
    assert not (await row(restorable))["from_the_word"]
    await restorable.pass_time(WINDOW - 4000)
    await spine.reconcile(hasten=True)
    assert isinstance(spine.accept(), Replay)
    assert spine.effects() == 1


async def test_a_second_word_is_about_the_second_send(restorable: Restorable) -> None:
    """Counted from the first one, its memory would be over, and the third send would count from itself."""
    intent = await sent_and_lost(restorable, acted=False)
    await restorable.spine.act("resolve_failed", intent)
    await restorable.pass_time(MEMORY)
    retry(restorable)
    await sends_again(restorable)
    await restorable.pass_time(400)
    second = (await row(restorable))["first_sent_at"]
    await restorable.spine.act("resolve_failed", intent)
    assert (await row(restorable))["denied_sent_at"] == second
    await sent_on_the_word(restorable)
    await nothing_more_is_sent(restorable, intent)


async def test_a_verdict_takes_the_place_of_a_word(restorable: Restorable) -> None:
    """What look-ups have proven needs no memory: the next send counts from itself."""
    spine = restorable.spine
    intent = await sent_and_lost(restorable, acted=False)
    await restorable.spine.act("resolve_failed", intent)
    retry(restorable)
    await sends_again(restorable, acted=False)
    assert (await row(restorable))["from_the_word"]
    askable = catalogue(spine.bank.url).providers["keyed"]
    spine.catalogue = replace(spine.catalogue, providers={**spine.catalogue.providers, "keyed": askable})
    use(spine, strategies=("lookup",), operation={"max_redrives": 0})
    # No older payment shows that the new look-ups find what was sent before them; they count as those of then.
    await spine.all("UPDATE idem.outbox SET sent_as = NULL RETURNING id")
    for _ in range(3):
        await restorable.pass_time(400)
        await spine.reconcile(hasten=True)
    found = await row(restorable)
    assert (found["status"], found["denied_sent_at"]) == ("held", None), await spine.evidence(intent)


async def test_a_new_provider_key_leaves_the_word_behind(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_and_lost(restorable, acted=False)
    await spine.all("UPDATE idem.outbox SET key_burned = true RETURNING id")
    before = (await row(restorable))["provider_key"]
    await restorable.spine.act("resolve_failed", intent, know_it_did_not_happen=True)
    assert (await row(restorable))["denied_sent_at"] is not None
    retry(restorable)
    await spine.work(faults=["act_then_drop"])
    found = await row(restorable)
    assert (found["provider_key"] != before, found["denied_sent_at"]) == (True, None)


async def test_a_word_against_the_doubt_of_a_restore_is_a_word_too(restorable: Restorable) -> None:
    """The memory of what lost commits may have sent is over, and an operator knows that they did not."""
    intent = restorable.spine.accepted()
    await restorable.recover_lost()
    assert (await row(restorable))["doubted_since"] is not None
    await restorable.pass_time(MEMORY)
    await restorable.sweep()
    await restorable.spine.act("redrive", intent, know_it_did_not_happen=True)
    found = await row(restorable)
    assert (found["status"], found["doubted_since"]) == ("pending", None)
    assert found["denied_sent_at"] is not None


@pytest.mark.parametrize("lost", [True, False])
async def test_a_restore_neither_ends_nor_moves_a_word(restorable: Restorable, lost: bool) -> None:
    intent = await sent_and_lost(restorable)
    await restorable.spine.act("resolve_failed", intent)
    before = await row(restorable)
    if lost:
        await restorable.recover_lost()
        assert (await row(restorable))["doubted_since"] == before["denied_sent_at"]
    else:
        await notices(restorable.spine, timeline=99)
        await lossless(restorable.spine)
        assert (await row(restorable))["doubted_since"] is None
    assert (await row(restorable))["denied_sent_at"] == before["denied_sent_at"]
    await sent_on_the_word(restorable)
    assert (await row(restorable))["from_the_word"]
    await nothing_more_is_sent(restorable, intent)
