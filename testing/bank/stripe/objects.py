"""All objects of Stripe-like accounts, as the sum of their past and scheduled changes."""

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from idem.testing.bank.records import Changed


class StripeObjects:
    """The changes in order of time. A future change counts once the clock has reached it, unless a later line of the
    log has voided it."""

    def __init__(self, changes: Iterable[Changed] = ()) -> None:
        self._objects: defaultdict[tuple[str, str], list[Changed]] = defaultdict(list)
        self._events: defaultdict[str, list[Changed]] = defaultdict(list)
        self._kinds: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._roots: defaultdict[tuple[str, str], list[Changed]] = defaultdict(list)
        self._called_off: set[str] = set()
        for change in changes:
            self.add(change)

    def add(self, change: Changed) -> None:
        """Add one line of the log."""
        root = self._roots[change.account, change.root]
        if change.voids:
            for other in [each for each in root if each.at > change.at]:
                self._call_off(other)
        insort(root, change, key=_moment)
        insort(self._objects[change.account, change.object], change, key=_moment)
        if change.type is not None:
            insort(self._events[change.account], change, key=_moment)
        if (kind := change.patch.get("object")) is not None:
            self._kinds[change.account, kind][change.object] = None

    def is_current(self, change: Changed) -> bool:
        """Whether the change has not been voided."""
        return change.id not in self._called_off

    def get(self, account: str, id: str, at: float = math.inf, more: Sequence[Changed] = ()) -> dict[str, Any] | None:
        """The object at that moment, with these further changes; None if there is none yet."""
        changes = [*self._objects.get((account, id), ()), *(each for each in more if each.object == id)]
        return _sum([each for each in sorted(changes, key=_moment) if each.at <= at])

    def as_event(self, change: Changed) -> tuple[dict[str, Any], dict[str, Any]]:
        """The object as the event of this change shows it, and the previous values of its changed members."""
        changes = self._objects[change.account, change.object]
        place = next(number for number, each in enumerate(changes) if each.id == change.id)
        before, after = _sum(changes[:place]) or {}, _sum(changes[: place + 1]) or {}
        return after, {name: before[name] for name in change.patch if name in before and before[name] != after[name]}

    def newest(self, account: str, kind: str, now: float, visible: float) -> Iterator[dict[str, Any]]:
        """The current objects of this kind that were made by `visible`; the newest first."""
        made = [
            (changes[0].at, place, id)
            for place, id in enumerate(self._kinds.get((account, kind), ()))
            if (changes := self._objects[account, id])
        ]
        for at, _, id in sorted(made, reverse=True):
            shown = self.get(account, id, now) if at <= visible else None
            if shown is not None:
                yield shown

    def events(self, account: str, since: float, until: float) -> list[Changed]:
        """The changes with an event from `since` to `until`, both included; the newest first."""
        return [each for each in reversed(self._events.get(account, [])) if since <= each.at <= until]

    def _call_off(self, change: Changed) -> None:
        self._called_off.add(change.id)
        for changes in (
            self._roots[change.account, change.root],
            self._objects[change.account, change.object],
            self._events[change.account],
        ):
            if change in changes:
                changes.remove(change)


def _sum(changes: Sequence[Changed]) -> dict[str, Any] | None:
    # An object exists from its first change on; a change of an object that does not exist yet creates nothing.
    if not any("object" in each.patch for each in changes):
        return None
    document: dict[str, Any] = {}
    for each in changes:
        document.update(each.patch)
    return document


def _moment(change: Changed) -> float:
    return change.at
