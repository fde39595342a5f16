"""Breadth first over all states of a world: each safety rule at each action, then whether all can come to rest."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from model import invariants
from model.actions import actions
from model.state import Action, State, World, begins, canonical, shown


@dataclass
class Found:
    """What an exploration has seen. `broken`: of each rule that does not hold, the shortest way to it. `happened`: the
    actions, by who did what."""

    world: World
    states: int = 0
    transitions: int = 0
    seconds: float = 0.0
    broken: dict[str, list[str]] = field(default_factory=dict)
    happened: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        figures = (
            f"{self.world.name}: {self.states:,} states, {self.transitions:,} transitions, {self.seconds:.1f} s CPU"
        )
        ways = (f"\n  {rule}\n    " + "\n    ".join(way) for rule, way in self.broken.items())
        return figures + f", {len(self.broken)} violations" + "".join(ways)


def explore(world: World, *, until: str | None = None) -> Found:
    """All states of a world. A broken rule ends it (`until`: that rule), and what breaks one leads no further."""
    found = Found(world)
    began = time.process_time()
    first = canonical(world, begins(world))
    numbers = {first: 0}
    came: list[tuple[int, Action | None]] = [(0, None)]
    before: list[list[int]] = [[]]
    resting = [0] if invariants.at_rest(world, first) else []
    queue = deque([first])
    while queue and (until not in found.broken if until else not found.broken):
        state = queue.popleft()
        number = numbers[state]
        for action, then in actions(world, state):
            then = canonical(world, then)
            found.transitions += 1
            found.happened.add(f"{action.who} {action.what}")
            broken = invariants.broken(world, state, action, then)
            for rule in broken:
                if rule not in found.broken:
                    found.broken[rule] = [*_way(came, number), str(action), f"then {shown(then)}"]
            place = numbers.get(then)
            if place is None:
                if broken:
                    continue
                place = numbers[then] = len(came)
                came.append((number, action))
                before.append([])
                queue.append(then)
                if invariants.at_rest(world, then):
                    resting.append(place)
            if invariants.automatic(action):
                before[place].append(number)
    found.states = len(came)
    if not queue and not found.broken:
        _liveness(found, numbers, came, before, resting)
    found.seconds = time.process_time() - began
    return found


def _way(came: list[tuple[int, Action | None]], number: int) -> list[str]:
    way = []
    while number:
        number, action = came[number]
        way.append(str(action))
    return way[::-1]


def _liveness(
    found: Found, numbers: dict[State, int], came: list[tuple[int, Action | None]], before: list[list[int]],
    resting: list[int],
) -> None:  # fmt: skip
    """Back from the states at rest, over what happens by itself: what is never met can never come to rest."""
    met = bytearray(len(came))
    todo = list(resting)
    for number in todo:
        met[number] = 1
    while todo:
        for number in before[todo.pop()]:
            if not met[number]:
                met[number] = 1
                todo.append(number)
    lost = met.find(0)
    if lost >= 0:
        state = next(state for state, number in numbers.items() if number == lost)
        found.broken[invariants.LIVENESS] = [*_way(came, lost), f"stays {shown(state)}"]
