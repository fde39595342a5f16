"""Account, origin and retention hold for every send, a redrive's and a dead letter's too (hazards 7, 8)."""

from dataclasses import replace
from uuid import UUID

import pytest
from fix_spine import KEYED, Spine
from settling.shop import sends, use

from idem.cli.doctor.queue import against
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import Account
from idem.outbox.operator import actions


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


async def by_hand(spine: Spine, intent: UUID) -> None:
    version = (await spine.one("SELECT version FROM idem.intents WHERE id = %(i)s", i=intent))["version"]
    await spine.run(actions.redrive, spine.catalogue, intent, by="ada", reason="again", version=version)


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
        await by_hand(spine, each["intent_id"])
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


async def test_the_retention_guard_holds_after_a_redrive(spine: Spine) -> None:
    """What came before is proven not executed, so the window begins anew; after its end there is no replay again."""
    intent = await spine.sent(amount=-1)
    assert (await spine.row(intent))["status"] == "held"
    await spine.advance(KEYED.key.retention * 3)
    await by_hand(spine, intent)
    await spine.work(faults=["drop_before_acting"])
    await spine.expect(intent, status="unknown", attempt=2)
    use(spine, lookups=False)
    await spine.reconcile(after=KEYED.key.retention - KEYED.key.margin + 1)
    assert len(sends(spine)) == 2
    assert (await spine.row(intent))["attempt"] == 2


async def test_inside_the_window_of_a_redrive_there_are_replays(spine: Spine) -> None:
    intent = await spine.sent(amount=-1)
    await spine.advance(KEYED.key.retention * 3)
    await by_hand(spine, intent)
    await spine.work(faults=["drop_before_acting"])
    await spine.reconcile(after=KEYED.key.retention - KEYED.key.margin - 60)
    assert len(sends(spine)) == 3
    assert (await spine.row(intent))["attempt"] == 3
