"""Which settled payments show that the provider still knows what was sent (docs/decisions/0040)."""

from dataclasses import replace
from typing import Any

import pytest
from fix_spine import Spine
from settling import shop
from settling.shop import lost, much_later, stands

from idem.outbox.domain.contract import ProviderRequest
from idem.outcomes import Succeeded
from idem.testing.bank import BankAccount as BankAccount


async def test_a_reference_that_a_person_gives_is_no_witness_of_the_account(spine: Spine) -> None:
    """The person made that payment by hand, in the account whose credentials stand here now."""
    shop.use(spine, key=replace(spine.catalogue.providers["keyed"].contract.key, replay="success_only"))
    spine.bank.add_account(BankAccount("another", "another-token"))
    intent, by_hand = await lost(spine, "lost", "act_then_drop"), await lost(spine, "by-hand", "drop_before_acting")
    before = spine.effects()
    shop.account(spine, credentials={"authorization": "Bearer another-token"})
    there = await spine.sent("made-there")
    made = await spine.value("SELECT provider_reference FROM idem.intents WHERE id = %(i)s", i=there)
    await spine.act("resolve_completed", by_hand, outcome=Succeeded(made, {}))
    await much_later(spine)
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
    await much_later(spine)
    await stands(spine, intent, "the path of the operation")
