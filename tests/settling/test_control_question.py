"""What an answered control question speaks for: one sender, from before the look to after it, and one way to ask."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_spine import KEYED, Spine
from fix_waiting import stopping
from settling import shop
from settling.asking import Asking

from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.providers.signing import RenewedToken
from idem.outbox.providers.template import KEY_TEXT
from idem.outbox.values import clock
from idem.outcomes import Absent
from idem.reconciler import due
from idem.reconciler.control_question import Disbelief
from idem.reconciler.lookup_claim import LookupClaim
from idem.testing.bank import BankAccount as BankAccount


class Desk(Asking):
    """A control question about the one unknown row, which is taken."""

    taken: LookupClaim

    async def take(self) -> None:
        self.taken = await self.claim(replay_first=False)

    async def confirm(self, taken: LookupClaim | None = None) -> Disbelief | None:
        """Whether an absence that was found a moment ago is believed."""
        return await self.control.confirm(
            Absent(), taken or self.taken, asked_as=self.sender.now(), lease_ends=clock.boottime() + 60
        )

    def ask_as(self, change: Callable[[], object]) -> None:
        """The account's token changes so between a look and the control question."""
        ask = self.lane.ask

        async def changed_first(*args: Any, **more: Any) -> Any:
            change()
            return await ask(*args, **more)

        self.lane.ask = changed_first  # type: ignore[method-assign]


async def paid_and_lost(spine: Spine, operation: str) -> None:
    await shop.paid(spine, "older", operation)
    await shop.lost(spine, operation=operation)
    await spine.run(due.hasten, since=None)


async def test_what_is_found_by_its_id_says_nothing_about_what_is_asked_for_by_reference(spine: Spine) -> None:
    """The operation misspells the member of the reference: the older payment is found by its id alone."""

    def request(params: Any) -> ProviderRequest:
        return ProviderRequest(
            "POST", "/payments", json={"amount": params["amount"], "currency": "eur", "refrence": KEY_TEXT}
        )

    shop.use(spine, kind="keyless", operation={"request": request})
    await paid_and_lost(spine, "pay.keyless")
    async with stopping(Desk(spine, "keyless")) as desk:
        await desk.take()
        known = replace(desk.taken, row=replace(desk.taken.row, reference="pay_known"))
        assert await desk.confirm(known) is None
        doubt = await desk.confirm()
        assert doubt is not None and "is not found" in doubt.note


@pytest.fixture
async def renewed(spine: Spine, tmp_path: Path) -> AsyncIterator[tuple[Desk, Path]]:
    """The account has its token in a file, which has another account's since the call was sent."""
    spine.bank.add_account(BankAccount("another", "another-token"))
    token = tmp_path / "token"
    token.write_text("keyed-token")
    shop.use(spine, key=replace(KEYED.key, replay="success_only"))
    shop.account(spine, credentials={}, signer=RenewedToken(token, "Bearer "))
    await paid_and_lost(spine, "pay.keyed")
    token.write_text("another-token")
    async with stopping(Desk(spine)) as desk:
        await desk.take()
        yield desk, token


async def test_credentials_that_come_back_between_look_and_control_question_confirm_nothing(
    renewed: tuple[Desk, Path],
) -> None:
    """The look was asked as another account. The right one finds the older payment, which says nothing of that look."""
    desk, token = renewed
    assert await desk.confirm() is not None
    desk.ask_as(lambda: token.write_text("keyed-token"))
    doubt = await desk.confirm()
    assert doubt is not None and "the credentials changed" in doubt.note and not doubt.counts
    assert await desk.confirm() is None, "asked as the right one, it is believed"


async def test_a_replay_is_not_vouched_for_by_other_credentials(renewed: tuple[Desk, Path]) -> None:
    desk, token = renewed
    ask = desk.lane.ask
    desk.ask_as(lambda: token.write_text("keyed-token"))
    assert await desk.control.vouch(desk.taken, lease_ends=clock.boottime() + 60) is not None
    token.write_text("another-token")
    desk.lane.ask = ask  # type: ignore[method-assign]
    assert await desk.control.vouch(desk.taken, lease_ends=clock.boottime() + 60) is not None, "nothing is kept of it"


@pytest.mark.parametrize("text", ["", None], ids=["empty", "missing"])
async def test_a_token_that_cannot_be_read_is_no_change_of_the_sender(
    renewed: tuple[Desk, Path], text: str | None
) -> None:
    """Nothing can leave, so nothing is decided either: no dead letter, no look that counts."""
    desk, token = renewed
    token.unlink()
    if text is not None:
        token.write_text(text)
    without = replace(desk.taken, replay=True)
    assert desk.sender.changed(without.sent_as) == ()
    assert desk.control.judged(without) == without
    doubt = await desk.confirm()
    assert doubt is not None and not doubt.counts
