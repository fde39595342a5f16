"""A daemon whose configuration lacks what others serve: what it writes must not make them believe too early."""

import dataclasses

import pytest
from fix_spine import KEYLESS, Spine
from fix_steps import claim_one

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.worker.claim import mark_start
from idem.sweeper.daemon import Sweeper


@pytest.mark.parametrize("knows_the_provider", [True, False])
async def test_a_sweep_without_the_contract_shortens_no_quiet_time(spine: Spine, knows_the_provider: bool) -> None:
    """The contract says that a request may act for two hours; the sweeper that ended the claim did not know it."""
    contract = dataclasses.replace(KEYLESS, flight_limit=7200, schedule=(5, 30, 120, 600, 90_000))
    provider = dataclasses.replace(spine.catalogue.providers["keyless"], contract=contract)  # type: ignore[type-var]
    spine.catalogue = dataclasses.replace(spine.catalogue, providers={**spine.catalogue.providers, "keyless": provider})
    intent = spine.accepted(operation="pay.keyless")
    claimed = await claim_one(spine, "keyless")
    assert await spine.run(mark_start, claimed.row, needed=1)
    await spine.advance(60)
    lacking = Catalogue(spine.catalogue.environment, {"keyless": provider} if knows_the_provider else {}, {})
    await Sweeper(spine.database, lacking).run_once()
    assert (await spine.row(intent))["status"] == "unknown"
    await spine.reconcile(after=1500, hasten=True, times=4)
    assert (await spine.row(intent))["status"] == "unknown", "believed absent while the call may still act"
