"""The provider of an example, and a server that speaks as it does."""

from typing import Any
from uuid import UUID

from fix_database import engine_of
from fix_spine import Spine

from idem.decisions import Accepted


class Provided(Spine):
    """A spine over one of the examples."""

    lease = 120
    """A replay and a look-up fit into it, with the deadline of the examples."""

    def paid(self, operation: str, params: dict[str, Any], key: str = "k1") -> UUID:
        engine = engine_of(self.url)
        with engine.begin() as connection:
            decision = self.acceptor.accept(connection, "t", operation, key, params)
        assert isinstance(decision, Accepted), decision
        return decision.intent_id

    @property
    def sends(self) -> int:
        return len(self.bank.log.sends())

    @property
    def lookups(self) -> list[str]:
        return [each.path for each in self.bank.log.requests if each.method == "GET"]

    async def ends(self, intent: UUID) -> tuple[str, int | None]:
        key = await self.key(intent)
        return key["state"], key["response_status"]
