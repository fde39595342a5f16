"""A lane with limits, and the rows that wait for it."""

from dataclasses import replace

from fix_spine import KEYED, Spine

from idem.outbox.domain.lane_scopes import LaneScope, lane_scopes
from idem.outbox.domain.limits import Limits


def limited(spine: Spine, limits: Limits) -> LaneScope:
    spine.change("keyed", contract=replace(KEYED, limits=limits))
    return lane_scopes(spine.catalogue)["keyed", "keyed"][0]


async def backlog(spine: Spine, *, unknown: int, pending: int) -> None:
    for n in range(unknown):
        spine.accepted(f"u{n}")
    if unknown:
        await spine.work(faults=["drop_before_acting"] * unknown)
        await spine.advance(10)
    for n in range(pending):
        spine.accepted(f"p{n}")
