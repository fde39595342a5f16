"""Which settled payments show that the provider still knows what was sent (docs/decisions/0040)."""

from dataclasses import replace
from typing import Any

import pytest
from fix_spine import Spine
from settling import shop
from settling.shop import lost

from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.operator import actions
from idem.outbox.settle.rendering import Renderer
from idem.outcomes import Succeeded
from idem.testing.bank import BankAccount as BankAccount


async def test_a_reference_that_a_person_gives_is_no_witness_of_the_account(spine: Spine) -> None:
    """The person made that payment by hand, in the account whose credentials stand here now."""
    shop.use(spine, key=replace(spine.catalogue.providers["keyed"].contract.key, replay="success_only"))
    spine.bank.add_account(BankAccount("another", "another-token"))
    intent, by_hand = await lost(spine, "lost", "act_then_drop"), await lost(spine, "by-hand", "drop_before_acting")
    before = spine.effects()
    provider = spine.provider("keyed")
    there = replace(provider.accounts["keyed"], credentials={"authorization": "Bearer another-token"})
    spine.change("keyed", accounts={"keyed": there})
    await spine.sent("made-there")
    made = await spine.one("SELECT provider_reference AS it FROM idem.intents WHERE idempotency_key = 'made-there'")
    version = (await spine.one("SELECT version FROM idem.intents WHERE id = %(i)s", i=by_hand))["version"]
    await spine.run(
        actions.resolve_completed, spine.catalogue, Renderer(), by_hand, Succeeded(made["it"], {}), by="ann",
        reason="made by hand", version=version,
    )  # fmt: skip
    for seconds in (60, 200, 200, 600, 4000, 90000):
        await spine.reconcile(after=seconds, hasten=True)
        await spine.work()
    await spine.expect(intent, status="unknown", effects=before + 1)


@pytest.mark.parametrize("path", ["/v2/payments", "/api/payments"])
async def test_a_path_that_was_moved_is_not_in_the_list_of_the_old_one(spine: Spine, path: str) -> None:
    """The look-ups show what was sent to the old path. A payment that went there says nothing about this one."""

    def at(where: str) -> None:
        def request(params: Any) -> ProviderRequest:
            return ProviderRequest("POST", where, json={"amount": params["amount"], "currency": "eur"})

        key = replace(spine.catalogue.providers["keyed"].contract.key, replay="success_only")
        shop.use(spine, key=key, operation={"request": request})

    at("/payments")
    await spine.sent("older")
    await spine.advance(60)
    at(path)
    intent = await spine.sent("lost", faults=["drop_before_acting"])
    for seconds in (60, 200, 200, 600, 4000, 90000):
        await spine.reconcile(after=seconds, hasten=True)
        await spine.work()
    assert (await spine.row(intent))["status"] == "unknown"
    (entry,) = await spine.all("SELECT reason, details FROM idem.dead_letters WHERE resolved_at IS NULL")
    assert "the path of the operation" in entry["details"]["why"]
