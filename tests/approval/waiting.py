"""Requests that wait for a person, in every way in which one comes to wait."""

from typing import Any
from uuid import UUID

import pytest
from fix_spine import Spine

from idem import Answer
from idem.decisions import Accepted
from idem.outbox.values.errors import OperatorRefused

BIG, SMALL = 5000, 100
OWN = Answer(403, {"why": "not this one"})


def above(params: Any) -> bool:
    return bool(params["amount"] > 1000)


class Waiting:
    """The spine with operations that want an approval of what is above 1000."""

    def __init__(self, spine: Spine) -> None:
        self.spine = spine
        for kind in ("keyed", "keyless"):
            spine.know(f"pay.{kind}", kind, approve=above)
            spine.know(
                f"pay.{kind}.two", kind, approve=lambda params: True, two_persons=True, rejected=lambda intent: OWN
            )

    def define(self, name: str = "pay.keyed", **changes: Any) -> None:
        """Change an operation, for what accepts it and for the daemons."""
        self.spine.operate(name, **changes)
        self.spine.acceptor.operations = self.spine.catalogue.operations

    def asks(self, key: str = "k1", amount: int = BIG, **options: Any) -> UUID:
        """A new request that waits for a person."""
        decided = self.spine.accept(key, amount, **options)
        assert isinstance(decided, Accepted) and decided.status == ("approval" if amount == BIG else "pending")
        return decided.intent_id

    async def approve(self, intent: UUID, **options: Any) -> Any:
        return await self.spine.act("approve", intent, **options)

    async def reject(self, intent: UUID, **options: Any) -> Any:
        return await self.spine.act("reject", intent, **options)

    async def refuses(self, match: str, action: str, intent: UUID, **options: Any) -> None:
        with pytest.raises(OperatorRefused, match=match):
            await self.spine.act(action, intent, **options)

    async def waits(self, intent: UUID) -> None:
        """It waits still, and nothing was sent: also after a pass of everything that could send it."""
        await self.waits_beside(intent, 0)

    async def waits_beside(self, intent: UUID, effects: int) -> None:
        """The same, where others were sent."""
        await self.spine.sweep()
        await self.spine.reconcile()
        assert await self.spine.works() == effects
        row = await self.spine.row(intent)
        assert (row["status"], row["first_sent_at"], row["attempt"]) == ("approval", None, 0)
        assert row["approval"] in ("wanted", "wanted_of_another")

    async def at_rest(self, intent: UUID) -> None:
        """Nobody decides in time: held."""
        await self.at_rest_after(intent, 90_000)

    async def at_rest_after(self, intent: UUID, seconds: float) -> None:
        await self.spine.advance(seconds)
        await self.spine.sweep()
        assert await self.spine.status(intent) == "held"

    async def evidence(self, intent: UUID, kind: str) -> dict[str, Any]:
        return await self.spine.one(
            "SELECT * FROM idem.evidence WHERE intent_id = %(i)s AND kind = %(k)s", i=intent, k=kind
        )
