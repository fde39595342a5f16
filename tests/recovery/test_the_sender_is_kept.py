"""A call that only lost commits have sent was sent as the last payments of the backup, and goes to no other account."""

from dataclasses import replace

import pytest
from fix_restore import MEMORY, Restorable
from fix_spine import Spine

from idem.testing.bank import BankAccount as BankAccount


def credentials(spine: Spine, token: str) -> None:
    there = replace(spine.provider().accounts["keyed"], credentials={"authorization": f"Bearer {token}"})
    spine.change("keyed", accounts={"keyed": there})


@pytest.mark.parametrize("older", [True, False], ids=["after a payment", "the first payment ever"])
async def test_what_lost_commits_have_sent_is_not_sent_as_another_account(restorable: Restorable, older: bool) -> None:
    spine = restorable.spine
    spine.bank.add_account(BankAccount("another", "another-token"))
    right = spine.catalogue
    if older:
        await spine.sent("older")
    intent = spine.accepted("lost")
    await restorable.backup()
    await spine.work()
    before = spine.effects()
    await restorable.restore()
    credentials(spine, "another-token")
    await restorable.recover_lost()
    for _ in range(3):
        await spine.work()
        await restorable.pass_time(61)
    if not older:
        # Nothing in the backup says as whom anything was sent (docs/decisions/0040, "What remains").
        assert spine.effects() == before + 1
        return
    assert spine.effects() == before
    spine.catalogue = right
    await restorable.pass_time(61)
    assert await spine.works() == before and (await spine.key(intent))["state"] == "completed"
    assert MEMORY > 400
