"""The provider of an example, and a server that speaks as it does."""

from pathlib import Path
from typing import Any
from uuid import UUID

from example_providers.fix_examples import ENV, lay
from fix_accept import Acceptor
from fix_database import ENVIRONMENT
from fix_spine import Spine

from idem.decisions import Accepted
from idem.outbox.config import load
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.testing.bank import Bank


class Provided(Spine):
    """A spine over one of the examples."""

    lease = 120
    """A replay and a look-up fit into it, with the deadline of the examples."""

    def paid(self, operation: str, params: dict[str, Any]) -> UUID:
        decision = self.accept(operation=operation, params=params)
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


def provided(database: Database, bank: Bank, url: str, folder: Path, name: str, instead: dict[str, str]) -> Provided:
    """A spine over the example of this name, with something else in its file `instead`, e.g. another address."""
    found = load(lay(name, folder, **instead, **{'environment = "production"': f'environment = "{ENVIRONMENT}"'}), ENV)
    known = Catalogue(ENVIRONMENT, found.providers, found.operations)
    settings = WorkerSettings(lease=60, margin=1, slots=8)
    return Provided(database, bank, known, Acceptor(known.operations, known.providers), url, settings)
