"""A row whose provider key is burned."""

from __future__ import annotations

from uuid import UUID

from fix_spine import Spine
from settling.shop import row_of


async def burned(spine: Spine, key: str = "k1") -> UUID:
    """Nothing was done, the key keeps a 500, and two absences have proven that: at rest under a burned key."""
    intent = spine.accepted(key)
    spine.bank.script(None, ["500_cached"])
    await spine.work()
    await spine.advance(10)
    await spine.reconcile()
    assert (await row_of(spine, intent))["key_burned"]
    await spine.advance(200)
    await spine.reconcile()
    assert (await row_of(spine, intent))["status"] == "held"
    return intent
