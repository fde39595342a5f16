"""`kinds` of a provider in idem.toml: which of the objects that one call makes is the one that it is about."""

from __future__ import annotations

from pydantic import Field, field_validator

from idem.outbox.config.outcome_settings import Pointer
from idem.outbox.config.section import Section
from idem.outbox.providers.object_types import Kinds
from idem.outbox.providers.path_patterns import is_pattern
from idem.outbox.values import json_pointer


class KindSettings(Section):
    """Kinds of objects, where one call makes several under one key: a payment and its charge."""

    at: Pointer = Field(description='JSON pointer, inside an object, to its kind, as "/object"; no default.')
    paths: dict[str, str] = Field(
        description="What a call is about, by the beginning of its path, as "
        '{"/v1/payment_intents" = "payment_intent"}: whole segments, a star for any one; the longest wins. An empty '
        "kind, or a path that fits none: every object counts. No default.",
    )

    @field_validator("paths")
    @classmethod
    def _are_patterns(cls, value: dict[str, str]) -> dict[str, str]:
        for each in value:
            if not is_pattern(each):
                raise ValueError(f"{each!r} is no beginning of a path: a slash, and stars for whole segments")
        return value

    def build(self) -> Kinds:
        return Kinds(json_pointer.parse(self.at), self.paths)
