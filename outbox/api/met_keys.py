"""The keys that this process has decided about lately. A request with one of them is a retry, so the database is asked
about its key first, and nothing else is made of it again: no check, no provider request, no provider key.

It is a guess, and no memory of answers (docs/decisions/0052): a key that is not there any more is asked as a new one.
"""

from typing import Final

MOST: Final = 20_000


class MetKeys:
    """The last `most` keys, by a number each: two of one number cost a question to the database, and no more."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._met: dict[int, None] = {}

    def add(self, place: tuple[str, str, str]) -> None:
        """A request of this tenant, operation and key was decided."""
        number = hash(place)
        if number not in self._met:
            if len(self._met) >= self._most:
                del self._met[next(iter(self._met))]
            self._met[number] = None

    def __contains__(self, place: tuple[str, str, str]) -> bool:
        return hash(place) in self._met
