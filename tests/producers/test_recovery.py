"""Hazards 5, 60: the database changed while a row was not rendered: asked about by its key, never replayed."""

from uuid import UUID

import pytest
from fix_restore import notices
from fix_spine import Spine
from producers.application import Application

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.recovery.quarantine import lost, work_off
from idem.outbox.recovery.release import release
from idem.outbox.settle import doubted_rows


async def settle_by_asking(spine: Spine, intent: UUID) -> None:
    for _ in range(6):
        await spine.reconcile(after=400, hasten=True)
        if await spine.status(intent) != OutboxStatus.UNKNOWN:
            return


async def test_where_a_replay_is_safe_it_stays_to_be_rendered(spine: Spine, application: Application) -> None:
    intent = application.accepted()
    await notices(spine, system_identifier=1)
    assert await spine.status(intent) == "unfrozen"
    assert await spine.works() == 1


async def test_of_what_was_never_rendered_no_absence_is_believed(spine: Spine, application: Application) -> None:
    """What lost commits sent for it is not known, so a person decides; then it is rendered and sent."""
    intent = application.accepted(operation="pay.keyless")
    await notices(spine, system_identifier=1)
    assert await spine.status(intent) == "unknown"
    assert application.once(operation="pay.keyless").decision == "unknown"
    assert await spine.works() == 0
    await settle_by_asking(spine, intent)
    row = await spine.row(intent) or {}
    assert (row["status"], row["claim_token"]) == ("unknown", None), "the claim was given back"
    assert "reconcile_exhausted" in await spine.letters(intent)
    for sure in ("resolve_failed", "redrive"):
        await spine.act(sure, intent, know_it_did_not_happen=True)
    assert await spine.status(intent) == "unfrozen", "it goes back to be rendered, and is never pending without bytes"
    assert await spine.works() == 1 and application.once(operation="pay.keyless").decision == "replay"


async def test_what_the_provider_has_completes_it(spine: Spine, application: Application) -> None:
    """The lost commits had rendered and sent it: asked by the key, which is the same, the provider knows it."""
    intent = application.accepted(operation="pay.keyless")
    key = (await spine.row(intent))["provider_key"]
    import httpx

    async with httpx.AsyncClient(base_url=spine.bank.url, verify=False) as client:
        sent = {"amount": 100, "currency": "eur", "reference": str(key)}
        made = await client.post("/payments", json=sent, headers={"authorization": "Bearer keyless-token"})
        assert made.is_success
    await notices(spine, system_identifier=1)
    await settle_by_asking(spine, intent)
    assert application.once(operation="pay.keyless").decision == "replay" and spine.effects() == 1


async def test_a_row_beyond_its_window_is_looked_up_and_not_replayed(spine: Spine, application: Application) -> None:
    """Inside the provider's retention the reconciler would replay; without bytes it can only ask."""
    intent = application.accepted()
    assert (await spine.run(lost, cautious(spine), by="ann", reason="a test")).unknown == 1
    row = await spine.row(intent) or {}
    assert row["status"] == "unknown" and row["first_sent_at"] is not None and row["replay_window"] > 0
    await spine.reconcile(after=60, hasten=True)
    seen = await spine.evidence(intent)
    assert ("reconciler", "lookup", "absent") in seen and not any(kind == "replay" for _, kind, _ in seen)
    assert (await spine.row(intent))["attempt"] == 0
    assert spine.effects() == 0


def cautious(spine: Spine) -> Catalogue:
    """A catalogue in which nothing is known, so that every queued row is doubted."""
    return Catalogue(spine.catalogue.environment, {}, {})


@pytest.mark.parametrize("name", ["pay.keyed", "pay.keyless"])
async def test_a_lossless_word_sends_it_back_to_be_rendered(spine: Spine, application: Application, name: str) -> None:
    intent = application.accepted(operation=name)
    async with spine.database.connection() as connection:
        await doubted_rows.list_open(connection, "a test")
        await work_off(connection, cautious(spine))
        assert await release(connection, spine.catalogue, by="anna", reason="a planned move") == 1
    assert await spine.status(intent) == "unfrozen"
    assert await spine.works() == 1


async def test_an_operator_s_redrive_of_what_was_never_rendered(spine: Spine, application: Application) -> None:
    intent = application.accepted()
    await spine.advance(2 * 86400)

    await spine.sweep()
    assert await spine.status(intent) == "held"
    await spine.act("redrive", intent)
    assert await spine.status(intent) == "unfrozen"
    assert await spine.works() == 1
