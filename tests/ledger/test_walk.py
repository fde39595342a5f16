"""The walk itself: pages, what breaks off, what runs beside it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fix_spine import Spine
from ledger.books import HOUR, counts, entries, keyed, listed, listing, post, walk

from idem.errors import OperatorRefused
from idem.outbox.operator import pause
from idem.outbox.providers.pages import Paging
from idem.outbox.values import json_pointer
from idem.reconciler.ledger import walk as walking
from idem.reconciler.ledger.window import Since

P = json_pointer.parse
TAGGED = {"metadata": {"idem_deployment": "test"}}


@pytest.fixture(autouse=True)
def bank_that_is_listed(spine: Spine) -> None:
    listed(spine)


async def accepted(spine: Spine, number: int, prefix: str = "k") -> None:
    await asyncio.to_thread(lambda: [spine.accepted(f"{prefix}{each}") for each in range(number)])


async def settled(spine: Spine, number: int) -> None:
    await accepted(spine, number)
    await work_off(spine)


async def work_off(spine: Spine) -> None:
    while await spine.all("SELECT FROM idem.outbox WHERE status = 'pending' LIMIT 1"):
        await spine.work()


async def test_a_hundred_payments_page_by_page(spine: Spine) -> None:
    """Our own among many others, eleven pages of bank's and several of ours."""
    listed(spine, limit=10)
    await settled(spine, 40)
    for start in range(0, 60, 20):
        await asyncio.gather(*(post(spine) for _ in range(start, start + 20)))
    lost = await post(spine, **TAGGED)
    before = len(spine.bank.log.requests)
    report = await keyed(spine)
    assert report.walked == "complete"
    assert (report.objects, counts(report)) == (101, {"matched": 40, "foreign": 60, "theirs_only": 1})
    assert [found.reference for found, _ in report.found] == [lost]
    assert len(spine.bank.log.requests) - before == 11, "pages alone: what was on them is not asked about"


@pytest.mark.parametrize("fault", ["503", "drop_before_acting"])
async def test_a_page_that_fails_for_good_is_never_clean(
    spine: Spine, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was shown until then counts; what was not shown proves nothing, so nothing is called ours only."""
    monkeypatch.setattr("idem.outbox.calls.lookup_pages.AGAIN", (0.01, 0.01))
    listed(spine, limit=10)
    await settled(spine, 25)
    await post(spine, **TAGGED)
    spine.bank.script({"method": "GET"}, ["none", "none", fault, fault, fault])
    checked = await walk(spine)
    (report, _) = checked.lanes
    assert (report.walked, checked.clean, checked.complete) == ("incomplete", False, False)
    assert "page 3 of the list could not be read" in str(report.why)
    assert counts(report) == {"matched": 20}
    assert await entries(spine) == []


async def test_one_lost_page_is_asked_for_again(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idem.outbox.calls.lookup_pages.AGAIN", (0.01, 0.01))
    listed(spine, limit=10)
    await settled(spine, 15)
    spine.bank.script({"method": "GET"}, ["none", "503"])
    assert (await keyed(spine)).walked == "complete"


async def test_a_list_that_is_longer_than_what_is_read_is_not_complete(spine: Spine) -> None:
    spine.change(
        "keyed", ledger=listing(10, page=Paging(style="after_id", parameter="after", more=P("/has_more"), most=2))
    )
    await settled(spine, 25)
    report = await keyed(spine)
    assert report.walked == "incomplete"
    assert "longer than the 2 pages" in str(report.why)


async def test_a_doubt_that_cannot_be_cleared_is_never_clean(spine: Spine) -> None:
    """Not on the list, and the provider does not answer: neither a discrepancy nor a match."""
    spine.bank.shift_clock(7200)
    await settled(spine, 1)
    spine.bank.script({"method": "GET"}, ["none", "503", "503", "503"])
    report = await keyed(spine)
    assert (report.walked, counts(report)) == ("incomplete", {"not_compared": 1})
    assert await entries(spine) == []


async def test_two_checks_at_once_open_one_letter(spine: Spine) -> None:
    listed(spine, limit=5)
    for _ in range(12):
        await post(spine, **TAGGED)
    await accepted(spine, 3)
    spine.bank.script({"method": "POST"}, ["act_then_drop"] * 3)
    await work_off(spine)
    first, second, third = await asyncio.gather(keyed(spine), keyed(spine), keyed(spine))
    for report in (first, second, third):
        assert counts(report)["theirs_only"] == 12
        assert report.walked == "complete"
    assert len(await entries(spine)) == 12
    assert sum(entry.new for report in (first, second, third) for _, entry in report.found if entry) == 12
    states = await spine.all("SELECT DISTINCT state, outcome FROM idem.intents")
    assert states == [{"state": "completed", "outcome": "succeeded"}]
    settled = "SELECT count(*) FROM idem.evidence WHERE kind = 'ledger_check' AND from_state <> to_state"
    assert await spine.value(f"{settled} AND to_state = 'completed'") == 3, "each was settled once"


async def test_a_walk_beside_live_traffic_finds_nothing(spine: Spine) -> None:
    """Rows in flight at the moment of the walk look like discrepancies (hazard 40)."""
    listed(spine, limit=20)
    stop = asyncio.Event()

    async def traffic() -> int:
        rounds = 0
        while not stop.is_set():
            await accepted(spine, 10, f"r{rounds}-")
            spine.bank.script({"method": "POST"}, ["act_then_drop", "none", "decline"])
            await asyncio.gather(spine.work(), spine.work())
            rounds += 1
        return rounds

    working = asyncio.create_task(traffic())
    try:
        for _ in range(8):
            report = await keyed(spine)
            assert report.walked == "complete", report.why
            assert report.discrepancies == 0, [found.details() for found, _ in report.found]
    finally:
        stop.set()
        assert await working > 0
    assert await entries(spine) == []
    assert spine.effects() == len({payment.key for payment in spine.bank.log.payments()})


@pytest.mark.parametrize("asked", ["answers", "fails"])
async def test_a_page_that_is_older_than_the_end_here_is_no_discrepancy(
    spine: Spine, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The page shows it as processing; before it is compared, the decline has become known here."""
    spine.bank.script(None, ["pending_then_declined:600"])
    await settled(spine, 1)
    find = walking.calls.find

    async def later(*arguments: Any) -> Any:
        spine.bank.shift_clock(601)
        await spine.reconcile(hasten=True)
        if asked == "fails":
            spine.bank.script({"method": "GET"}, ["503"] * 5)
        return await find(*arguments)

    monkeypatch.setattr(walking.calls, "find", later)
    report = await keyed(spine)
    assert (await spine.one("SELECT outcome FROM idem.intents"))["outcome"] == "refused"
    assert counts(report) == ({"matched": 1} if asked == "answers" else {"not_compared": 1})
    assert report.walked == ("complete" if asked == "answers" else "incomplete")
    assert await entries(spine) == []


async def test_the_window_ends_a_horizon_ago(spine: Spine) -> None:
    """What was made a moment ago may not be on the list yet: it is the next check's."""
    listed(spine, horizon=600)
    await settled(spine, 1)
    await post(spine, **TAGGED)
    report = await keyed(spine, Since(ago=60))
    assert (report.objects, counts(report)) == (0, {})
    assert report.window is not None and report.window[1] - report.window[0] == pytest.approx(60, abs=1)
    assert datetime.now(UTC).timestamp() - report.window[1] == pytest.approx(600, abs=5)


async def test_a_time_that_cannot_be_compared_is_refused(spine: Spine) -> None:
    with pytest.raises(OperatorRefused, match="is in the future"):
        await walk(spine, Since(at=datetime.now(UTC) + timedelta(hours=1)))
    with pytest.raises(OperatorRefused, match="the ledger keeps 400d"):
        await walk(spine, Since(ago=86400 * 401))


async def test_a_pause_of_look_ups_holds_for_the_walk(spine: Spine) -> None:
    await spine.run(pause.pause, "keyed", "", {"lookups"}, by="ada", reason="their maintenance")
    before = len(spine.bank.log.requests)
    report = await keyed(spine)
    assert report.walked == "incomplete"
    assert "idem resume keyed" in str(report.why)
    assert len(spine.bank.log.requests) == before


async def test_a_contract_that_takes_everything_for_ours_ends_the_walk(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong tag would bury operators under dead letters."""
    monkeypatch.setattr(walking, "MOST", 20)
    monkeypatch.setattr(walking, "PAGE", 10)
    listed(spine, dedicated_account=True, tag=None)
    for _ in range(35):
        await post(spine)
    report = await keyed(spine)
    assert report.walked == "incomplete"
    assert "check `deployment_tag`" in str(report.why)
    assert len(await entries(spine)) == 20


async def test_one_object_that_cannot_be_compared_stops_no_other(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = await post(spine, **TAGGED)
    good = await post(spine, **TAGGED)
    opening = walking.discrepancies.open_once

    async def broken(connection: object, found: walking.Discrepancy) -> object:
        if found.reference == bad:
            raise RuntimeError("a bug")
        return await opening(connection, found)  # type: ignore[arg-type]

    monkeypatch.setattr(walking.discrepancies, "open_once", broken)
    report = await keyed(spine)
    assert (report.walked, counts(report)) == ("incomplete", {"theirs_only": 1, "not_compared": 1})
    assert [found.reference for found, _ in report.found] == [good]


async def test_intents_of_a_window_are_each_asked_about_in_one_check(spine: Spine) -> None:
    """By the time of their end: one that was accepted before the window falls between no two checks."""
    await settled(spine, 3)
    await spine.forced(
        "UPDATE idem.intents SET created_at = created_at - interval '3 days', provider_reference = 'pay_nowhere_' || id"
    )
    assert counts(await keyed(spine, HOUR)) == {"ours_only": 3, "theirs_only": 3}
