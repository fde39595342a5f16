"""Hazards 5, 60: what recovery leaves may be sent until the provider may have forgotten it, and by nobody later."""

from uuid import UUID

import pytest
from fix_restore import MEMORY, Restorable
from recovery.words import WINDOW, use
from settling import shop

from idem.decisions import Accepted, Decision, InProgress, Replay, Retrying, Unknown
from idem.errors import OperatorRefused
from idem.outbox.operator import ages


async def sent_after_the_backup(restorable: Restorable, *, held: bool = False, **options: object) -> UUID:
    """A call that is queued (or at rest) in the restored database, and that was made in what is lost."""
    spine = restorable.spine
    use(spine, start_within=None if not held else 60.0, give_up_after=10 * MEMORY, retry="client", **options)  # type: ignore[arg-type]
    intent = spine.accepted()
    if held:
        await restorable.pass_time(120)
        await restorable.sweep()
        assert await spine.status(intent) == "held"
    await restorable.backup()
    if held:
        assert isinstance(spine.accept(), Retrying)
    assert await spine.works() == 1
    await restorable.restore()
    return intent


async def settle(restorable: Restorable) -> None:
    for _ in range(8):
        await restorable.sweep()
        await restorable.spine.work()
        await restorable.spine.reconcile(hasten=True)
        await restorable.pass_time(400)


@pytest.mark.parametrize(("later", "lookups"), [(60, True), (WINDOW - 60, False), (WINDOW + 1, True), (MEMORY, False)])
async def test_hazard_5_a_queued_row_is_sent_within_memory(restorable: Restorable, later: float, lookups: bool) -> None:
    spine = restorable.spine
    intent = await sent_after_the_backup(restorable, lookups=lookups)
    found = await restorable.recover_lost()
    assert (found.unknown, found.left) == (0, 1)
    assert found.left_for is not None and WINDOW - 60 < found.left_for <= WINDOW
    assert await spine.status(intent) == "pending"
    (pending,) = (each for each in (await spine.run(ages.ages))["outbox"] if each["status"] == "pending")
    assert WINDOW - 60 < pending["replay_window_left"] <= WINDOW, "the time that is left is a metric (P5)"
    sends = len(spine.bank.log.sends())
    await restorable.pass_time(later)
    await spine.work()
    if later < WINDOW:
        assert len(spine.bank.log.sends()) == sends + 1, "it is sent again, and the bank answers from its memory"
        assert isinstance(spine.accept(), Replay)
    else:
        assert len(spine.bank.log.sends()) == sends
        await restorable.sweep()
        assert await spine.status(intent) == "unknown"
        await settle(restorable)
        assert len(spine.bank.log.sends()) == sends, "no replay either"
        if lookups:
            assert isinstance(spine.accept(), Replay)
        else:
            assert await spine.letters(intent), "a person is called (P5)"
    assert spine.effects() == 1


@pytest.mark.parametrize("later", [60.0, MEMORY + 60])
async def test_hazard_60_a_resting_row_is_retried_within_the_memory_only(restorable: Restorable, later: float) -> None:
    spine = restorable.spine
    intent = await sent_after_the_backup(restorable, held=True)
    await restorable.recover_lost()
    assert await spine.status(intent) == "held"
    await restorable.pass_time(later)
    if later < WINDOW:
        assert isinstance(spine.accept(), Retrying)
        await spine.work()
        assert isinstance(spine.accept(), Replay)
    else:
        assert isinstance(spine.accept(), InProgress), "it is not taken up, even before the sweeper comes"
        await spine.work()
        await restorable.sweep()
        assert isinstance(spine.accept(), Unknown)
        await settle(restorable)
        assert isinstance(spine.accept(), Replay), "the look-up found it"
    assert spine.effects() == 1


async def test_an_operator_s_redrive_cancel_and_new_key_ask_too(restorable: Restorable) -> None:
    spine = restorable.spine
    intent = await sent_after_the_backup(restorable, held=True)
    await restorable.recover_lost()
    with pytest.raises(OperatorRefused, match="under a new provider key"):
        await spine.act("redrive", intent, new_provider_key=True)
    with pytest.raises(OperatorRefused, match="went back to an earlier point"):
        await spine.act("cancel", intent)
    await restorable.pass_time(MEMORY)
    with pytest.raises(OperatorRefused, match="no longer remembers its key"):
        await spine.act("redrive", intent)
    assert await spine.works() == 1
    await restorable.sweep()
    assert await spine.status(intent) == "unknown"


async def test_a_second_send_counts_the_window_from_the_first_that_may_have_been(restorable: Restorable) -> None:
    """Its answer is lost: the guard of the next replay counts from the first one."""
    spine = restorable.spine
    intent = await sent_after_the_backup(restorable, lookups=False)
    await restorable.recover_lost()
    await restorable.pass_time(WINDOW - 3600)
    await spine.work(faults=["act_then_drop"])
    assert await spine.status(intent) == "unknown"
    age = await spine.one(
        "SELECT extract(epoch FROM o.first_sent_at - n.created_at) AS since FROM idem.outbox o"
        " JOIN idem.intents n ON n.id = o.intent_id"
    )
    assert age["since"] == 0
    await restorable.pass_time(2 * 3600)
    sends = len(spine.bank.log.sends())
    await settle(restorable)
    assert len(spine.bank.log.sends()) == sends
    assert spine.effects() == 1


@pytest.mark.parametrize("fault", ["422_before_acting", "401", "503", "429", "drop_before_acting"])
async def test_a_second_send_that_is_refused_proves_nothing_about_the_first(restorable: Restorable, fault: str) -> None:
    spine = restorable.spine
    intent = await sent_after_the_backup(restorable)
    await restorable.recover_lost()
    await spine.work(faults=[fault])
    assert await spine.status(intent) in ("unknown", "pending")
    assert (await spine.key(intent))["state"] != "failed_retryable"
    await settle(restorable)
    assert isinstance(spine.accept(), Replay)
    assert spine.effects() == 1


async def test_a_doubted_row_that_is_too_old_was_perhaps_sent(restorable: Restorable) -> None:
    spine = restorable.spine
    use(spine, start_within=3600.0)
    intent = spine.accepted()
    await restorable.backup()
    await spine.work()
    await restorable.restore()
    await restorable.recover_lost()
    await restorable.pass_time(7200)
    await restorable.sweep()
    assert await spine.status(intent) == "unknown", "nobody is told that nothing happened"
    await settle(restorable)
    assert isinstance(spine.accept(), Replay)
    assert spine.effects() == 1


async def test_what_is_claimed_unknown_or_awaited_counts_anew(restorable: Restorable) -> None:
    """A lost replay may be under way, and absences that were seen before it say nothing."""
    spine = restorable.spine
    intent = await spine.sent(operation="pay.keyless", faults=["drop_before_acting"])
    assert await spine.status(intent) == "unknown"
    await restorable.pass_time(200)
    await spine.reconcile()
    assert (await spine.row(intent))["absences"] == 1
    assert (await restorable.recover_lost()).open == 1
    row = await spine.row(intent) or {}
    assert row["absences"] == 0 and row["doubted_since"] is not None
    quiet = await spine.one("SELECT quiet_after > statement_timestamp() + interval '170 s' AS raised FROM idem.outbox")
    assert quiet["raised"]


async def test_a_key_that_was_burned_in_what_is_lost_is_looked_for_under_the_next_one(restorable: Restorable) -> None:
    """Queued under its first key; in what is lost that was burned, and the effect made under the second."""
    spine = restorable.spine
    shop.use(spine, kept=True)
    intent = spine.accepted()
    await restorable.backup()
    await spine.work(faults=["500_cached"])
    for seconds in (10, 200, 200):
        await restorable.pass_time(seconds)
        await spine.reconcile()
    assert await spine.works() == 1 and isinstance(spine.accept(), Replay)
    await restorable.restore()
    await restorable.recover_lost()
    await restorable.pass_time(MEMORY + 60)
    await settle(restorable)
    assert spine.effects() == 1
    assert isinstance(spine.accept(), Replay), await spine.evidence(intent)


async def test_what_was_accepted_after_the_backup_meets_the_provider_s_memory(restorable: Restorable) -> None:
    """Lost by definition; the client's retry derives the same provider key, so it is answered from the memory."""
    spine = restorable.spine
    await restorable.backup()
    await spine.sent()
    first = spine.accept()
    await restorable.restore()
    await restorable.recover_lost()
    again: Decision = spine.accept()
    assert isinstance(again, Accepted)
    await spine.work()
    second = spine.accept()
    assert isinstance(first, Replay) and isinstance(second, Replay)
    assert spine.effects() == 1
