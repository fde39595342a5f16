"""After a 5xx of its own a provider may still carry it out (`late_effects`, hazard 27): an absence settles nothing."""

from fix_spine import Spine
from fix_steps import claim_one, report, settle
from settling.shop import cancels, count_lookups, sends, serve, standing, use

from idem.decisions import Replay
from idem.outbox.domain.contract import CancelRule, KeyRule
from idem.outcomes import Ambiguous
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.bank.settings import CancelByKey

LATE = {"late_effects": True, "key": KeyRule("header", "idempotency-key", "success_only")}


async def test_an_absence_after_a_5xx_is_no_verdict(spine: Spine) -> None:
    """However often it is seen; then the effect appears by itself, and the daily look finds it."""
    contract = use(spine, **LATE)
    intent = await spine.sent(faults=["500_rolled_forward:600"])
    assert (await spine.row(intent))["server_error"]
    for _ in contract.schedule:
        await spine.reconcile(after=5000)
    row = await spine.row(intent)
    assert row["status"] == "unknown"
    assert row["absences"] == count_lookups(spine) == len(contract.schedule)
    assert await spine.letters(intent) == ["reconcile_exhausted"]
    why = await spine.one("SELECT details FROM idem.dead_letters")
    assert "may still carry it out" in why["details"]["why"]
    spine.bank.shift_clock(700)
    await spine.reconcile(after=110_000)
    assert isinstance(spine.accept(), Replay)
    assert await spine.letters(intent) == []
    assert len(sends(spine)) == spine.effects() == 1


async def test_without_a_5xx_the_same_contract_settles_by_absence(spine: Spine) -> None:
    use(spine, **LATE)
    intent = await spine.sent(faults=["drop_before_acting"])
    assert not (await spine.row(intent))["server_error"]
    await spine.reconcile(after=200, times=2)
    assert (await spine.row(intent))["status"] != "unknown"


async def test_a_5xx_of_a_replay_marks_the_row_too(spine: Spine) -> None:
    use(spine, late_effects=True)
    intent = await spine.sent(faults=["drop_before_acting", "500_before_acting"])
    await spine.reconcile(after=10)
    assert (await spine.row(intent))["server_error"]


async def test_a_5xx_that_came_too_late_to_be_reported_marks_the_row(spine: Spine) -> None:
    """Its claim was swept meanwhile; what it saw is kept all the same."""
    intent = spine.accepted()
    claimed = await claim_one(spine)
    await spine.sweep(after=60)
    assert (await spine.row(intent))["server_error"] is False
    await settle(spine, report(spine, claimed, Ambiguous(), status=503))
    await spine.expect(intent, status="unknown", server_error=True)


async def test_a_cancel_that_blocks_late_requests_settles_what_an_absence_may_not(spine: Spine) -> None:
    serve(
        spine,
        BankAccount("stones", "stones-token", replay="success_only", cancel=CancelByKey(blocks_late_requests=True)),
    )
    use(spine, cancel=CancelRule(blocks_late_requests=True), **LATE)
    intent = await spine.sent(faults=["500_rolled_forward:600"])
    for _ in range(2):
        assert cancels(spine) == 0
        await spine.reconcile(after=200)
    assert cancels(spine) == 1
    assert (await spine.row(intent))["key_burned"]
    for _ in range(2):
        await spine.reconcile(after=200)
        await spine.work()
    spine.bank.shift_clock(700)
    assert isinstance(spine.accept(), Replay)
    assert len(set(sends(spine))) == 2
    assert standing(spine) == 1


async def test_a_cancel_that_blocks_no_late_request_does_not(spine: Spine) -> None:
    contract = use(spine, cancel=CancelRule(), **LATE)
    intent = await spine.sent(faults=["500_rolled_forward:600"])
    for _ in contract.schedule:
        await spine.reconcile(after=5000)
    assert cancels(spine) == 0
    assert await spine.letters(intent) == ["reconcile_exhausted"]


async def test_a_person_may(spine: Spine) -> None:
    use(spine, operation={"redrive": "none"}, **LATE)
    intent = await spine.sent(faults=["500_before_acting"])
    await spine.advance(400)
    await spine.act("resolve_failed", intent)
    await spine.expect(intent, status="held", server_error=False)
