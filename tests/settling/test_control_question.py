"""What an answered control question speaks for: one sender, from before the look to after it, and one way to ask."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fix_spine import KEYED, Spine
from settling import shop

from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.domain.lane_names import lane_names
from idem.outbox.providers.signing import RenewedToken
from idem.outbox.providers.template import KEY_TEXT
from idem.outbox.values import clock
from idem.outbox.worker.account_check import AccountWatch
from idem.outbox.worker.sent_as import Sender
from idem.outcomes import Absent
from idem.reconciler import due
from idem.reconciler.control_question import ControlQuestion, Doubt
from idem.reconciler.lookup_claim import LookupClaim
from idem.testing.bank import BankAccount as BankAccount


@dataclass
class Desk:
    """A control question about one row that was taken, with the real lane to the bank."""

    lane: Lane
    sender: Sender
    control: ControlQuestion
    taken: LookupClaim

    async def confirm(self, taken: LookupClaim | None = None) -> Doubt | None:
        """Whether an absence that was found a moment ago is believed."""
        return await self.control.confirm(
            Absent(), taken or self.taken, asked_as=self.sender.now(), lease_ends=clock.boottime() + 60
        )


async def desk_of(spine: Spine, kind: str) -> Desk:
    """Of the one unknown row of this provider."""
    provider = spine.catalogue.providers[kind]
    name = lane_names(spine.catalogue)[kind, kind][0]
    lane = Lane(provider, provider.accounts[kind], slots=2, margin=1)
    sender = Sender(provider, AccountWatch(spine.database, name, lane, "t"))
    async with spine.database.connection() as connection:
        await due.hasten(connection, since=None)
        (taken,) = await due.claim_due(
            connection, name, provider.contract, token=uuid4(), holder="t", lease=60, limit=1, now=clock.boottime(),
            replay_first=False, sent_as=await sender.ready(connection), senders=sender.same(),
        )  # fmt: skip
    return Desk(lane, sender, ControlQuestion(spine.database, name, lane, sender), taken)


async def paid_and_lost(spine: Spine, operation: str) -> None:
    await spine.sent("older", operation=operation)
    await spine.advance(60)
    await spine.sent("lost", operation=operation, faults=["act_then_drop"])
    spine.bank.forget_script()
    await spine.advance(60)


async def test_what_is_found_by_its_id_says_nothing_about_what_is_asked_for_by_reference(spine: Spine) -> None:
    """The operation misspells the member of the reference: the older payment is found by its id alone."""

    def request(params: Any) -> ProviderRequest:
        return ProviderRequest(
            "POST", "/payments", json={"amount": params["amount"], "currency": "eur", "refrence": KEY_TEXT}
        )

    shop.use(spine, kind="keyless", operation={"request": request})
    await paid_and_lost(spine, "pay.keyless")
    desk = await desk_of(spine, "keyless")
    try:
        known = replace(desk.taken, row=replace(desk.taken.row, reference="pay_known"))
        assert await desk.confirm(known) is None
        doubt = await desk.confirm()
        assert doubt is not None and "is not found" in doubt.note
    finally:
        await desk.lane.close()


@pytest.fixture
async def renewed(spine: Spine, tmp_path: Path) -> AsyncIterator[tuple[Desk, Path]]:
    """The account has its token in a file, which has another account's since the call was sent."""
    spine.bank.add_account(BankAccount("another", "another-token"))
    token = tmp_path / "token"
    token.write_text("keyed-token")
    shop.use(spine, key=replace(KEYED.key, replay="success_only"))
    provider = spine.provider("keyed")
    account = replace(provider.accounts["keyed"], credentials={}, signer=RenewedToken(token, "Bearer "))
    spine.change("keyed", accounts={"keyed": account})
    spine.acceptor.providers = spine.catalogue.providers
    await paid_and_lost(spine, "pay.keyed")
    token.write_text("another-token")
    desk = await desk_of(spine, "keyed")
    yield desk, token
    await desk.lane.close()


async def test_credentials_that_come_back_between_look_and_control_question_confirm_nothing(
    renewed: tuple[Desk, Path],
) -> None:
    """The look was asked as another account. The right one finds the older payment, which says nothing of that look."""
    desk, token = renewed
    assert await desk.confirm() is not None
    ask = desk.lane.ask

    async def put_back_first(*args: Any, **more: Any) -> Any:
        token.write_text("keyed-token")
        return await ask(*args, **more)

    desk.lane.ask = put_back_first  # type: ignore[method-assign]
    doubt = await desk.confirm()
    assert doubt is not None and "the credentials changed" in doubt.note and not doubt.counts
    assert await desk.confirm() is None, "asked as the right one, it is believed"


async def test_a_replay_is_not_vouched_for_by_other_credentials(renewed: tuple[Desk, Path]) -> None:
    desk, token = renewed
    ask = desk.lane.ask

    async def put_back_first(*args: Any, **more: Any) -> Any:
        token.write_text("keyed-token")
        return await ask(*args, **more)

    desk.lane.ask = put_back_first  # type: ignore[method-assign]
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
