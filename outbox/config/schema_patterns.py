"""Patterns of JSON Schema, in an engine whose time grows with the text: the one that pydantic brings (Rust's regex).

A backtracking engine, as Python's re, tries `^(a+)+$` in as many ways as a text has, two for each letter. This one has
no look-around and no references back, and its cost is the length of the text times the size of the pattern.
"""

import re
import warnings
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

MOST_STATES: Final = 1000
"""Characters of a pattern whose counted repetitions are written out. `maxLength` counts further."""

MOST_WEIGHT: Final = 20_000
"""The same with each class as many times as its automaton over UTF-8 is larger than that of a letter."""

TEXT_FOR_A_STEP: Final = 1000
"""Characters times weight that cost as much as a step of a schema."""

_WEIGHTS: Final = (
    (re.compile(r"\\[wWDSpP]|[^\x00-\x7f]"), 100),
    (re.compile(r"\\[ds]"), 30),
    (re.compile(r"^\[\^|^\.$"), 10),
)
"""What stands in an atom of a pattern, and how much larger it makes its automaton: measured, rounded up."""

_COUNT: Final = re.compile(r"\{([0-9]{1,6})(,?)([0-9]{0,6})\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)


class Pattern:
    """One pattern. Raises ValueError where the engine cannot run it, or reads it otherwise than JSON Schema does."""

    def __init__(self, text: str) -> None:
        self.states = states(text)
        if self.states > MOST_STATES:
            raise ValueError(
                f"the pattern {text!r} counts too far: written out it has {self.states} characters, more than "
                f"{MOST_STATES}; say maxLength beside a pattern that does not count"
            )
        self.weight = states(text, weighted=True)
        if self.weight > MOST_WEIGHT:
            raise ValueError(
                f"the pattern {text!r} counts classes of many characters (\\w, \\s, \\S) too often: say which "
                "characters, e.g. [A-Za-z0-9_], or maxLength beside a pattern that does not count"
            )
        with warnings.catch_warnings():
            # Python warns of "[" and "&&" in a class, which the other engine reads as a class of classes.
            warnings.simplefilter("error", FutureWarning)
            try:
                # Without a flag, Python takes an expression from its cache and gives no warning.
                re.compile(text, re.UNICODE)
            except FutureWarning as warning:
                raise ValueError(
                    f"the pattern {text!r} means different things to different engines ({warning}): write a backslash "
                    "before what stands for itself"
                ) from None
            except re.error as error:
                raise ValueError(f"the pattern {text!r} is not a regular expression: {error}") from None
            except RecursionError:
                raise ValueError(f"the pattern {text[:60]!r}… has too many groups inside each other") from None
        try:
            self._validator = SchemaValidator(core_schema.str_schema(pattern=text, regex_engine="rust-regex"))
        except SchemaError as error:
            said = str(error).strip().splitlines()[-1].strip().removeprefix("error: ")
            raise ValueError(
                f"the pattern {text!r} cannot be run in time that grows with the text alone: {said}. Write it without"
            ) from None

    def cost(self, text: str) -> int:
        """Steps that a search in this text may cost."""
        return 1 + len(text) * self.weight // TEXT_FOR_A_STEP

    def found_in(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        return self._validator.isinstance_python(text)


@lru_cache(1000)
def pattern(text: str) -> Pattern:
    """The pattern, compiled once. Raises ValueError."""
    return Pattern(text)


def _weight(atom: str) -> int:
    return max((weight for found, weight in _WEIGHTS if found.search(atom)), default=1)


def states(text: str, *, weighted: bool = False) -> int:
    """Characters of a pattern whose counted repetitions are written out: at least as many as it can be in at once.

    `weighted`: each as often as its automaton is larger than that of a letter.
    """
    groups: list[int] = [0]
    last, at = 0, 0
    while at < len(text):
        if text[at] == "\\":
            last, at = _weight(text[at : at + 2]) if weighted else 1, at + 2
        elif found := _CLASS.match(text, at):
            last, at = _weight(found[0]) if weighted else 1, found.end()
        elif counted := _COUNT.match(text, at):
            least, comma, most = counted.groups()
            groups[-1] += last * (max(1, int(most or least) + (1 if comma and not most else 0)) - 1)
            last, at = 0, counted.end()
            continue
        elif text[at] == "(":
            groups.append(0)
            last, at = 0, at + 1
            continue
        elif text[at] == ")" and len(groups) > 1:
            last, at = groups.pop(), at + 1
        else:
            last, at = (_weight(text[at]) if weighted else 1) * (text[at] not in "*+?|^$"), at + 1
            if not last:
                continue
        groups[-1] += last
    return sum(groups)
