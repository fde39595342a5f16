"""`object_types` of a provider in idem.toml: which of the objects that one call makes is the one that it is about.

One call makes several under one key: a payment and its charge.
"""

from typing import Any

from pydantic import field_validator

from idem.outbox.providers import response
from idem.outbox.providers.path_patterns import is_pattern, nearest
from idem.outbox.values import json_pointer
from idem.outbox.values.settings_base import Pointer, Section


class ObjectTypes(Section):
    """Types of objects, where one call makes several under one key: a payment and its charge."""

    at: Pointer
    """JSON pointer, inside an object, to its type, e.g. "/object"; no default."""
    paths: dict[str, str]
    """The type of object that a call is about, by the beginning of its path, as {"/v1/payment_intents" =
    "payment_intent"}: whole segments, a star for any one; the longest wins. An empty type, or a path that fits none:
    every object counts. No default."""

    @field_validator("paths")
    @classmethod
    def _are_patterns(cls, value: dict[str, str]) -> dict[str, str]:
        for each in value:
            if not is_pattern(each):
                raise ValueError(f"{each!r} is not the beginning of a path: a slash, and stars for whole segments")
        return value

    def of_path(self, path: str) -> str | None:
        """The type of object that a call to this path is about; None: every type counts."""
        found = nearest(self.paths, path)
        return None if found is None else self.paths[found] or None

    def of(self, shown: Any) -> str | None:
        """The type of an object."""
        return response.word(json_pointer.resolve(shown, self.at))

    def counts(self, shown: Any, path: str) -> bool:
        """Whether an object can be what a call to this path is about."""
        wanted = self.of_path(path)
        return wanted is None or self.of(shown) == wanted


def counting(types: ObjectTypes | None, shown: Any, path: str) -> bool:
    """The same for a contract that may have no types."""
    return types is None or types.counts(shown, path)
