"""A ledger check: the walks over all lanes, one after the other."""

from collections.abc import Sequence
from typing import TypeAlias

from idem.outbox.calls.lane import Lane
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.settle.answer_rendering import Renderer
from idem.reconciler.ledger.report import Checked
from idem.reconciler.ledger.walk import LedgerWalk
from idem.reconciler.ledger.window import Since, window

Lanes: TypeAlias = Sequence[tuple[LaneScope, Lane]]


async def ensure(database: Database, lanes: Lanes, since: Since) -> None:
    """Raises OperatorRefused, before anything is done, for a time that cannot be compared."""
    horizons = [lane.provider.contract.lookup.horizon for _, lane in lanes if lane.provider.contract.listed]
    if horizons:
        async with database.connection() as connection:
            await window(connection, since, max(horizons))


async def check(
    database: Database, catalogue: Catalogue, lanes: Lanes, since: Since, *, dry_run: bool = False
) -> Checked:
    """Hold the ledger against the list of every lane whose provider has one. `dry_run` writes nothing.

    Raises OperatorRefused (`ensure`), and what an unreachable database raises: what was written until then stays.
    """
    renderer = Renderer()
    walks = [LedgerWalk(database, catalogue, renderer, lane_name, lane, dry_run) for lane_name, lane in lanes]
    return Checked(tuple([await walk.run(since) for walk in walks]), dry_run)
