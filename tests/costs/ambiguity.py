"""Which regular expressions can cost more than their text is long: found in the expression, not by a stopwatch.

A backtracking matcher tries every way in which a text can be taken. There are more of them than a constant for each
character exactly where the automaton has two states p and q and a word that leads from p to p, from p to q and from q
to q (Weber and Seidl, "On the degree of ambiguity of finite automata"): then a text of many such words that fails at
its end is tried once for each. A search begins anew at every character, which is one more such state.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

parser: Any = re._parser  # type: ignore[attr-defined]
constants: Any = re._constants  # type: ignore[attr-defined]

COPIES = 3
"""Of what is repeated with an upper bound: what has one is a constant, however large."""
ASCII = 0x100


class Automaton:
    """Glushkov's automaton of an expression; a follower is in its list once for each way that leads to it."""

    def __init__(self, pattern: str | bytes, flags: int, *, search: bool) -> None:
        self.classes: list[frozenset[int]] = []
        self.follow: list[list[int]] = []
        self.flags = flags
        self.bounded = False
        self.doubled = False
        tree = parser.parse(pattern, flags)
        self.alphabet = _alphabet(tree)
        _, first, last = self._sequence(tree)
        self.ends = frozenset(last)
        if search:
            start = self._state(self.alphabet)
            self.follow[start] = [start, *first]

    def costly(self, *, anchored: bool) -> bool:
        """Whether a text exists that is tried in ever more ways. `anchored`: all of the text has to fit."""
        if self.doubled:
            return True
        anchored = anchored or self.bounded
        reach = [self._reachable([state]) for state in range(len(self.classes))]
        loops = [state for state in range(len(self.classes)) if state in reach[state]]
        for state in loops:
            ways = Counter(self.follow[state])
            if any(count > 1 and state in reach[after] for after, count in ways.items()):
                return True
        for p in loops:
            for q in loops:
                # Where a match may end on the way, there is nothing to try again.
                ends = frozenset() if anchored else self.ends
                if p != q and q in reach[p] and q not in ends and self._pumped(p, q, reach, ends):
                    return True
        return False

    def _pumped(self, p: int, q: int, reach: list[set[int]], ends: frozenset[int]) -> bool:
        seen = {(p, p, q)}
        waiting = deque(seen)
        while waiting:
            a, b, c = waiting.popleft()
            for x in self.follow[a]:
                if p not in reach[x] and x != p:
                    continue
                for y in self.follow[b]:
                    both = self.classes[x] & self.classes[y]
                    if not both or (q not in reach[y] and y != q):
                        continue
                    for z in self.follow[c]:
                        if not both & self.classes[z] or (q not in reach[z] and z != q) or z in ends:
                            continue
                        if (x, y, z) == (p, q, q):
                            return True
                        if (x, y, z) not in seen:
                            seen.add((x, y, z))
                            waiting.append((x, y, z))
        return False

    def _reachable(self, states: Iterable[int]) -> set[int]:
        seen: set[int] = set()
        waiting = [after for state in states for after in self.follow[state]]
        while waiting:
            state = waiting.pop()
            if state not in seen:
                seen.add(state)
                waiting.extend(self.follow[state])
        return seen

    def _state(self, characters: frozenset[int]) -> int:
        self.classes.append(characters)
        self.follow.append([])
        return len(self.classes) - 1

    def _sequence(self, items: Any) -> tuple[bool, list[int], list[int]]:
        nullable, first, last = True, [], []
        for item in items:
            empty, begins, ends = self._item(item)
            for state in last:
                self.follow[state].extend(begins)
            first = [*first, *begins] if nullable else first
            last = [*last, *ends] if empty else ends
            nullable = nullable and empty
        return nullable, first, last

    def _item(self, item: Any) -> tuple[bool, list[int], list[int]]:
        kind, given = item
        name = str(kind)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            state = self._state(_characters(item, self.alphabet, self.flags))
            return False, [state], [state]
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repeat(*given)
        if name == "SUBPATTERN":
            return self._sequence(given[3])
        if name == "ATOMIC_GROUP":
            return self._sequence(given)
        if name == "BRANCH":
            found = [self._sequence(each) for each in given[1]]
            self.doubled |= sum(each[0] for each in found) > 1
            return (any(each[0] for each in found), [state for each in found for state in each[1]],
                    [state for each in found for state in each[2]])  # fmt: skip
        # What looks back at the beginning lets no match fail at its end.
        self.bounded |= name in ("AT", "GROUPREF") or (name in ("ASSERT", "ASSERT_NOT") and given[0] > 0)
        assert name in ("AT", "ASSERT", "ASSERT_NOT", "GROUPREF"), name
        return True, [], []

    def _repeat(self, least: int, most: Any, inner: Any) -> tuple[bool, list[int], list[int]]:
        endless = most is constants.MAXREPEAT
        parts = []
        for number in range(max(1, min(least, COPIES)) if endless else min(int(most), COPIES)):
            empty, first, last = self._sequence(inner)
            parts.append((empty or number >= least, first, last))
        if endless and parts:
            for state in parts[-1][2]:
                self.follow[state].extend(parts[-1][1])
        nullable, begins, ends = True, [], []
        for empty, first, last in parts:
            for state in ends:
                self.follow[state].extend(first)
            begins = [*begins, *first] if nullable else begins
            ends = [*ends, *last] if empty else last
            nullable = nullable and empty
        return nullable, begins, ends


def costly(pattern: str | bytes, flags: int = 0, *, search: bool, anchored: bool) -> bool:
    """Whether the expression can cost more than a constant for each character of its text."""
    return Automaton(pattern, flags, search=search).costly(anchored=anchored)


def _leaves(items: Any) -> Iterator[Any]:
    for kind, given in items:
        name = str(kind)
        if name in ("LITERAL", "NOT_LITERAL"):
            yield chr(given)
        elif name == "RANGE":
            yield from (chr(given[0]), chr(given[1]))
        elif name == "IN":
            yield from _leaves(given)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from _leaves(given[2])
        elif name == "SUBPATTERN":
            yield from _leaves(given[3])
        elif name == "ATOMIC_GROUP":
            yield from _leaves(given)
        elif name == "BRANCH":
            for each in given[1]:
                yield from _leaves(each)


def _alphabet(tree: Any) -> frozenset[int]:
    """All of Latin-1, and what stands at the edges of the classes beyond it."""
    named = {ord(character) + step for character in _leaves(tree) for step in (-1, 0, 1)}
    return frozenset(range(ASCII)) | frozenset(code for code in named if 0 <= code < 0x110000)


def _characters(item: Any, alphabet: frozenset[int], flags: int) -> frozenset[int]:
    kind, given = item
    name = str(kind)
    if name == "ANY":
        return alphabet if flags & re.DOTALL else alphabet - {10}
    if name == "NOT_LITERAL":
        return alphabet - _cased({given}, flags)
    if name == "LITERAL":
        return _cased({given}, flags) & alphabet
    negated, found = False, set()
    for inner, value in given:
        match str(inner):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found.add(value)
            case "RANGE":
                found |= {code for code in alphabet if value[0] <= code <= value[1]}
            case "CATEGORY":
                found |= {code for code in alphabet if re.fullmatch(CATEGORIES[str(value)], chr(code))}
            case other:
                raise AssertionError(other)
    found = _cased(found, flags) & alphabet
    return frozenset(alphabet - found) if negated else frozenset(found)


CATEGORIES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


def _cased(codes: set[int], flags: int) -> frozenset[int]:
    if not flags & re.IGNORECASE:
        return frozenset(codes)
    both = {ord(each) for code in codes for each in {chr(code).lower(), chr(code).upper()} if len(each) == 1}
    return frozenset(codes | both)
