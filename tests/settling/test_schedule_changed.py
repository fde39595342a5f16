"""A schedule or an operation changes while rows are unknown: each row keeps an entry or a next look (P5)."""

import dataclasses
from uuid import UUID

import pytest
from fix_spine import KEYED, Spine

from idem.outbox.domain.contract import LookupRule


def with_schedule(spine: Spine, provider: str, schedule: tuple[float, ...]) -> None:
    known = spine.provider(provider)
    spine.change(provider, contract=dataclasses.replace(known.contract, schedule=schedule))


def without_operation(spine: Spine, name: str) -> None:
    rest = {each: known for each, known in spine.catalogue.operations.items() if each != name}
    spine.catalogue = dataclasses.replace(spine.catalogue, operations=rest)


async def lost(spine: Spine, provider: str = "keyless") -> UUID:
    """An intent whose call was made and whose answer was lost; the bank answers every question with nothing."""
    intent = await spine.sent(operation=f"pay.{provider}", faults=["drop_before_acting"])
    await spine.expect(intent, status="unknown")
    return intent


@pytest.mark.parametrize("lookups", [3, 4, 5, 12])
async def test_a_schedule_made_shorter_leaves_no_unknown_row_without_an_entry(spine: Spine, lookups: int) -> None:
    """The row has had more look-ups than the new schedule has times: the entry is there before its next look is due."""
    intent = await lost(spine)
    await spine.all(
        "UPDATE idem.outbox SET lookups = %(n)s, available_at = now() + interval '1 day' RETURNING id", n=lookups
    )
    with_schedule(spine, "keyless", (5, 30, 120))
    await spine.reconcile()
    assert await spine.letters(intent) == ["reconcile_exhausted"]
    assert await spine.value("SELECT count(*) FROM idem.evidence WHERE kind = 'schedule_used_up'") == 1
    assert await spine.value("SELECT details ->> 'why' FROM idem.dead_letters") == "no look-up of the schedule is left"
    await spine.reconcile()
    assert await spine.value("SELECT seen FROM idem.dead_letters") == 1, "a second pass finds the entry"


async def test_a_look_past_the_end_of_the_schedule_opens_the_entry_too(spine: Spine) -> None:
    """Another process with the longer schedule made the look-ups between: the next look here opens the entry."""
    intent = await lost(spine)
    with_schedule(spine, "keyless", (5, 30, 120))
    await spine.all("UPDATE idem.outbox SET lookups = 7, available_at = now() - interval '1 s' RETURNING id")
    spine.bank.script({"method": "GET"}, ["503"] * 3)
    await spine.reconcile()
    assert await spine.letters(intent) == ["reconcile_exhausted"]


async def test_a_row_of_a_longer_schedule_goes_on_without_an_entry(spine: Spine) -> None:
    intent = await lost(spine)
    await spine.all("UPDATE idem.outbox SET lookups = 4, available_at = now() + interval '1 h' RETURNING id")
    with_schedule(spine, "keyless", (5, 30, 120, 600, 3600, 21600, 86400))
    await spine.reconcile()
    assert await spine.letters(intent) == []


async def test_an_unknown_row_whose_operation_has_gone_is_told_and_can_be_decided(spine: Spine) -> None:
    """Nobody asks about it any more: after a day it has an entry, and an operator decides it without the operation."""
    intent = await lost(spine)
    without_operation(spine, "pay.keyless")
    await spine.reconcile(hasten=True)
    await spine.sweep()
    assert await spine.letters(intent) == [], "its look is late by less than a day"
    assert (await spine.sweep(after=2 * 86400)).unasked == 1
    assert await spine.letters(intent) == ["not_settleable"]
    assert (await spine.sweep()).unasked == 0, "told once"
    assert (await spine.act("resolve_failed", intent)).state == "failed_retryable"


async def test_a_paused_lane_is_not_told_as_unasked(spine: Spine) -> None:
    intent = await lost(spine)
    without_operation(spine, "pay.keyless")
    await spine.all(
        "INSERT INTO idem.lanes (provider, account, lookups_paused) VALUES ('keyless', '', true)"
        " ON CONFLICT (provider, account) DO UPDATE SET lookups_paused = true RETURNING provider"
    )
    await spine.sweep(after=2 * 86400)
    assert await spine.letters(intent) == []


@pytest.mark.parametrize("over", [False, True])
async def test_a_row_that_waits_for_its_replay_is_not_told_as_unasked_before_its_memory_ends(
    spine: Spine, over: bool
) -> None:
    """Two days of a pause of calls, with a provider that remembers keys for a month and cannot be asked."""
    month = 30 * 86400
    rule = dataclasses.replace(KEYED.key, retention=month)
    contract = dataclasses.replace(KEYED, lookup=LookupRule(), key=rule)
    spine.change("keyed", contract=contract, lookups=())
    intent = await lost(spine, "keyed")
    await spine.all("UPDATE idem.outbox SET replay_window = %(w)s RETURNING id", w=contract.replay_window)
    await spine.all("INSERT INTO idem.lanes (provider, account, paused) VALUES ('keyed', '', true) RETURNING provider")
    assert (await spine.reconcile(after=2 * 86400)).asked == {}
    await spine.sweep()
    assert await spine.letters(intent) == []
    if over:
        await spine.sweep(after=month)
        assert await spine.letters(intent) == ["not_settleable"], "it waits for nothing any more, and nobody asks"
        return
    await spine.all("UPDATE idem.lanes SET paused = false RETURNING provider")
    assert (await spine.reconcile()).settled == {"replay:succeeded": 1}


async def test_a_take_that_was_left_behind_keeps_its_quiet_time_when_it_is_told(spine: Spine) -> None:
    """The reconciler died with its claim, which may have been a replay; the quiet time grows by what may still act."""
    intent = await lost(spine, "keyed")
    await spine.all(
        "UPDATE idem.outbox SET claim_token = gen_random_uuid(), claimed_by = 'reconciler-dead', claimed_at = now(),"
        " claimed_until = now() + interval '2 days' RETURNING id"
    )
    without_operation(spine, "pay.keyed")
    await spine.advance(3 * 86400)
    before = await spine.row(intent)
    await spine.sweep()
    after = await spine.row(intent)
    assert await spine.letters(intent) == ["not_settleable"]
    assert after["quiet_after"] > before["claimed_until"] and after["claim_token"] is None


async def test_a_redrive_whose_operation_has_gone_comes_to_rest_with_an_entry(spine: Spine) -> None:
    """Its automatic redrive is due and nobody makes it: while it could still be started it waits, then it is told."""
    intent = await lost(spine)
    await spine.advance(10_000)
    await spine.reconcile(hasten=True, times=2)
    row = await spine.row(intent)
    assert row is not None and row["status"] == "held" and row["redrive_at"] is not None, row
    without_operation(spine, "pay.keyless")
    assert await spine.letters(intent) == []
    await spine.sweep(after=2 * 86400)
    await spine.expect(intent, status="held", redrive_at=None, letters=["too_late"])
