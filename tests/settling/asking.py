"""A reconciler's question about one row, with the real lane to the bank: its parts, for a test to step through."""

from typing import Any

from fix_spine import Spine
from fix_steps import claim_due_row, lane

from idem.outbox.calls.lane import Lane
from idem.outbox.worker.account_check import AccountWatch
from idem.outbox.worker.sender import Sender
from idem.reconciler.asker import Asker
from idem.reconciler.control_question import ControlQuestion
from idem.reconciler.lookup_claim import LookupClaim


class Asking:
    """The lane of this account, as whom it sends, its control question, and what asks."""

    def __init__(self, spine: Spine, kind: str = "keyed") -> None:
        self._spine, self._kind, name = spine, kind, lane(spine, kind)
        provider = spine.provider(kind)
        self.lane = Lane(provider, provider.accounts[kind], slots=2, margin=1)
        self.sender = Sender(provider, AccountWatch(spine.database, name, self.lane, "t"))
        self.control = ControlQuestion(spine.database, name, self.lane, self.sender)
        self.asker = Asker(spine.database, self.lane, self.control, self.sender)
        self.close = self.lane.close

    async def claim(self, **more: Any) -> LookupClaim:
        """The one row that is due."""
        sent_as = await self._spine.run(self.sender.ready)
        return await claim_due_row(self._spine, self._kind, sent_as=sent_as, senders=self.sender.same(), **more)
