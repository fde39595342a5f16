"""Kinds of objects: one call makes several (a payment and its charge), under one key, and is about one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from idem.outbox.providers import response
from idem.outbox.providers.path_patterns import nearest
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import Tokens


@dataclass(frozen=True, slots=True)
class Kinds:
    """`at` is where an object says its kind; `paths` are the kinds of what a call is about, by the pattern with which
    its path begins; an empty one: every kind counts there."""

    at: Tokens
    paths: Mapping[str, str]

    def of_path(self, path: str) -> str | None:
        """The kind that a call to this path is about; None: every kind counts."""
        found = nearest(self.paths, path)
        return None if found is None else self.paths[found] or None

    def of(self, shown: Any) -> str | None:
        """The kind of an object."""
        return response.word(json_pointer.resolve(shown, self.at))

    def counts(self, shown: Any, path: str) -> bool:
        """Whether an object can be what a call to this path is about."""
        wanted = self.of_path(path)
        return wanted is None or self.of(shown) == wanted


def counting(kinds: Kinds | None, shown: Any, path: str) -> bool:
    """The same for a contract that may have no kinds."""
    return kinds is None or kinds.counts(shown, path)
