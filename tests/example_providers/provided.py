"""The provider of an example, and a server that speaks as it does."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fix_spine import Spine
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.domain.decisions import Accepted
from idem.reconciler.daemon import Pass, Reconciler


class Provided(Spine):
    """A spine over one of the examples."""

    def paid(self, operation: str, params: dict[str, Any], key: str = "k1") -> UUID:
        engine = create_engine(self.url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
        with engine.begin() as connection:
            decision = self.acceptor.accept(connection, "t", operation, key, params)
        assert isinstance(decision, Accepted), decision
        return decision.intent_id

    async def reconcile(self, **options: Any) -> Pass:
        # A replay and a look-up fit into the lease, with the deadline of the examples.
        one = Reconciler(self.database, self.catalogue, ReconcilerSettings(lease=120), slots=4, margin=1)
        try:
            return await one.run_once(**options)
        finally:
            await one.close()

    @property
    def sends(self) -> int:
        return len(self.bank.log.sends())

    @property
    def looks(self) -> list[str]:
        return [each.path for each in self.bank.log.requests if each.method == "GET"]

    async def ends(self, intent: UUID) -> tuple[str, int | None]:
        key = await self.key(intent)
        return key["state"], key["response_status"]
