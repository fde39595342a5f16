"""Account, origin and retention hold for every send, a redrive's and a dead letter's too (hazards 7, 8)."""

from dataclasses import replace

import pytest
from fix_spine import KEYED, Spine
from settling.shop import sends, use

from idem.cli.doctor.queue import against
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import Account


def moved(spine: Spine, what: str) -> Catalogue:
    """The configuration after somebody edited it under open rows."""
    provider = spine.catalogue.providers["keyed"]
    ours = provider.accounts["keyed"]
    accounts = {
        "origin": {"keyed": replace(ours, origin="http://127.0.0.1:9")},
        "account": {"other": Account("other", ours.origin, ours.credentials)},
    }[what]
    changed = replace(provider, accounts=accounts)  # type: ignore[type-var]
    known = spine.catalogue.operations["pay.keyed"]
    account = next(iter(accounts))
    return replace(
        spine.catalogue,
        providers={**spine.catalogue.providers, "keyed": changed},
        operations={**spine.catalogue.operations, "pay.keyed": replace(known, account=account)},
    )


@pytest.mark.parametrize("what", ["origin", "account"])
async def test_a_redrive_goes_to_the_account_it_was_accepted_for_or_nowhere(spine: Spine, what: str) -> None:
    """Both the automatic one and that of a dead letter: not sent, not asked about, and doctor names the reason."""
    automatic = spine.accepted("automatic")
    resting = spine.accepted("resting")
    lost = await spine.sent("lost", faults=["drop_before_acting", "422_before_acting", "act_then_drop"])
    use(spine, lookups=True, key=replace(KEYED.key, replay="success_only"))
    await spine.execute("UPDATE idem.outbox SET status = 'held' WHERE status = 'pending'")
    await spine.reconcile(after=200, times=2)
    before = len(spine.bank.log.requests)
    assert before > 0
    statuses = {(await spine.row_if_any(each) or {"status": None})["status"] for each in (automatic, resting, lost)}
    right, spine.catalogue = spine.catalogue, moved(spine, what)
    held = await spine.all("SELECT intent_id FROM idem.outbox WHERE status = 'held'")
    assert held, statuses
    for each in held:
        await spine.act("redrive", each["intent_id"])
    for _ in range(3):
        await spine.reconcile(after=200, hasten=True)
        assert (await spine.work()).claimed == 0
    assert len(spine.bank.log.requests) == before, "nothing was sent, nothing was asked"
    rows = await spine.all("SELECT provider, account, origin, operation, format_version FROM idem.outbox")
    assert rows
    for row in rows:
        why = against(row, spine.catalogue)
        assert why is not None
        assert ("for http" if what == "origin" else "account keyed of provider keyed is not configured") in why
    spine.catalogue = right
    assert (await spine.work()).claimed == len(rows)


@pytest.mark.parametrize(("past_the_end", "attempts"), [(1, 2), (-60, 3)], ids=["after its end", "inside it"])
async def test_the_retention_guard_holds_after_a_redrive(spine: Spine, past_the_end: int, attempts: int) -> None:
    """What came before is proven not executed, so the window begins anew; after its end there is no replay again."""
    intent = await spine.sent(amount=-1)
    assert (await spine.row(intent))["status"] == "held"
    await spine.advance(KEYED.key.retention * 3)
    await spine.act("redrive", intent)
    await spine.work(faults=["drop_before_acting"])
    await spine.expect(intent, status="unknown", attempt=2)
    use(spine, lookups=False)
    await spine.reconcile(after=KEYED.key.retention - KEYED.key.margin + past_the_end)
    assert len(sends(spine)) == attempts
    assert (await spine.row(intent))["attempt"] == attempts
