"""A row whose provider key is burned."""

from uuid import UUID

from fix_spine import Spine


async def burned(spine: Spine, key: str = "k1") -> UUID:
    """Nothing was done, the key keeps a 500, and two absences have proven that: at rest under a burned key."""
    intent = await spine.sent(key, faults=["500_cached"])
    await spine.reconcile(after=10)
    assert (await spine.row(intent))["key_burned"]
    await spine.reconcile(after=200)
    assert (await spine.row(intent))["status"] == "held"
    return intent
