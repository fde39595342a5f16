"""A jump of the database's clock forward cuts no quiet time short: a stalled request may act, whatever a clock says."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fix_clock import stepped
from fix_spine import KEYED, Spine
from fix_waiting import stopping
from settling.shop import use

from idem.outbox.config.settings import ReconcilerSettings
from idem.reconciler.daemon import Reconciler

pytestmark = pytest.mark.own_sessions

HOUR = 3600
LEASE = 30
LONGEST = KEYED.flight_limit + KEYED.pause_allowance + LEASE


def daemon(spine: Spine) -> AbstractAsyncContextManager[Reconciler]:
    settings = ReconcilerSettings(lease=LEASE)
    return stopping(Reconciler(spine.database, spine.catalogue, settings, slots=4, margin=1))


async def beat(spine: Spine, reconciler: Reconciler) -> None:
    """A heartbeat, which compares the clocks."""
    await spine.run(reconciler.context.life.beat)


async def look(reconciler: Reconciler, times: int = 4) -> None:
    for _ in range(times):
        await reconciler.run_once(hasten=True)


async def unknown(spine: Spine) -> Any:
    """A call that is unknown and may be stalled on its way; the provider can be asked, and not called again."""
    use(spine, key=replace(KEYED.key, replay="none"))
    intent = await spine.sent(faults=["drop_before_acting"])
    assert (await spine.row(intent))["status"] == "unknown"
    return intent


@pytest.mark.parametrize("seen", [True, False], ids=["a jump", "no daemon saw it"])
async def test_an_absence_waits_until_what_was_sent_can_act_no_more(spine: Spine, seen: bool) -> None:
    intent = await unknown(spine)
    async with daemon(spine) as reconciler:
        await beat(spine, reconciler)
        with stepped(spine.url, HOUR):
            if seen:
                await beat(spine, reconciler)
            await look(reconciler)
            # The other one shows that the look-ups decide, and that the jump alone keeps them from it.
            assert (await spine.key(intent))["state"] == ("unknown" if seen else "failed_retryable")
        if seen:
            with stepped(spine.url, HOUR + round(LONGEST) + 60):
                await look(reconciler, times=2)
            assert (await spine.key(intent))["state"] != "unknown"


async def test_what_was_quiet_before_the_jump_stays_so_and_nothing_is_raised_twice(spine: Spine) -> None:
    intent = await unknown(spine)
    async with daemon(spine) as reconciler:
        (lane,) = (each for each in reconciler.lanes if each.name.provider == "keyed")
        life = reconciler.context.life
        await beat(spine, reconciler)
        with stepped(spine.url, HOUR):
            await beat(spine, reconciler)
            assert life.leap is not None
            async with spine.database.connection() as connection:
                for raised in (1, 0):
                    assert await lane._quiet.keep(connection, life.leap, life.leap.noticed) == raised
                assert (await spine.row(intent))["quiet_after"] == life.leap.at + timedelta(seconds=LONGEST)
                # A daemon's own leap ends when nothing from before it can act any more.
                again = replace(life.leap, at=life.leap.at + timedelta(hours=1))
                assert await lane._quiet.keep(connection, again, again.noticed + LONGEST + 1) == 0
        await spine.advance(2 * HOUR)
        with stepped(spine.url, HOUR):
            assert await spine.run(lane._quiet.keep, life.leap, life.leap.noticed) == 0
