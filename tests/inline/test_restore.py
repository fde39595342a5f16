"""A call of the caller's own code after the database went back: it may have been made in what is lost."""

from inline.buying import Shop

from idem.decisions import Unknown
from idem.outbox.recovery import quarantine


async def lost(shop: Shop) -> None:
    """What `idem recover --lost` does."""
    await shop.spine.run(quarantine.lost, shop.known, by="ann", reason="restored")


async def test_a_resting_call_is_taken_up_by_nobody_until_it_is_settled(shop: Shop) -> None:
    await (await shop.run()).not_executed("the line was down")
    await lost(shop)
    assert isinstance(await shop.begin(), Unknown), "it may have been taken up again in what is lost"


async def test_a_running_call_that_was_not_made_is_unknown_all_the_same(shop: Shop) -> None:
    """This attempt was not executed; an earlier end of it and a later attempt may be what is lost."""
    run = await shop.run()
    await lost(shop)
    await run.not_executed("the line was down")
    assert await shop.spine.status(run.intent_id) == "unknown"
    assert isinstance(await shop.begin(), Unknown)
    assert shop.spine.effects() == 0


async def test_a_running_call_that_ends_with_an_answer_is_done(shop: Shop) -> None:
    run = await shop.run()
    await lost(shop)
    assert await run.complete(await shop.pay(run)) == "settled"
    assert shop.spine.effects() == 1
