"""`lookup.by_events` of a provider in idem.toml: its own list of events, asked for those of one call."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from idem.outbox.config.outcome_settings import Pointer, tokens
from idem.outbox.config.page_settings import PageSettings, address
from idem.outbox.config.section import Duration, Section
from idem.outbox.providers.event_lookups import KEPT, EventLookup, Order
from idem.outbox.providers.lookup_targets import SLACK, TIMES
from idem.outbox.providers.object_types import Kinds
from idem.outbox.providers.pages import MOST
from idem.outbox.providers.path_patterns import is_pattern
from idem.outbox.providers.template import compile_text
from idem.outbox.values import json_pointer

OURS = frozenset({"key", "path", *TIMES})


class EventLookSettings(Section):
    """The provider's list of events. It settles a call whose answer was lost: its events name our key."""

    path: str = Field(
        description="Path and query of the GET, as /v1/events?limit=100&created%5Bgte%5D={idem.sent_at}; also "
        "{idem.sent_at_iso}, {idem.key} and {idem.path}."
    )
    items: Pointer = Field(
        default="", description='JSON pointer to the list of events, as "/data"; default the whole answer.'
    )
    match: Pointer | list[Pointer] = Field(
        description='JSON pointers, inside an event, of which one must equal our key, as "/request/idempotency_key" or '
        '"/data/object/metadata/idem_key"; no default.'
    )
    object: Pointer = Field(
        default="",
        description='JSON pointer, inside an event, to the object that the outcome rules read, as "/data/object"; '
        "default the event itself.",
    )
    type: Pointer = Field(default="/type", description='JSON pointer, inside an event, to its type; default "/type".')
    types: list[str] | dict[str, list[str] | Literal[False]] = Field(
        default_factory=list,
        description="Types that speak of the object that the call made, a star at the end for all that begin so; "
        'default all. Also a table by the beginning of the path of the call, as {"/v1/refunds" = ["refund.*"]}: whole '
        "segments, a star for any one; the longest wins. Calls that fit none, or one that is false, are not asked "
        "about: no event is sure to come of them. One call makes events of other objects too.",
    )
    order: Order = Field(
        default="newest_first",
        description='Order of the list: "newest_first" (default) or "oldest_first", and then it is read to its end.',
    )
    created: Pointer | None = Field(
        default=None,
        description="JSON pointer, inside an event, to its time (POSIX or RFC 3339), where a page is not in order; "
        "default none.",
    )
    kept: Duration = Field(
        default=KEPT,
        description="Seconds for which the provider keeps its events; default 3d. Later nobody asks: an event that is "
        "gone would look like one that never was.",
    )
    page: PageSettings | None = Field(default=None, description="How the list goes on; default none: one page is all.")

    @field_validator("types")
    @classmethod
    def _are_types(
        cls, value: list[str] | dict[str, list[str] | Literal[False]]
    ) -> list[str] | dict[str, list[str] | Literal[False]]:
        for each in value if isinstance(value, list) else [name for names in value.values() for name in names or ()]:
            if not each or "*" in each[:-1]:
                raise ValueError(f"{each!r} is no type of events: write its name, or its beginning and one star")
        if isinstance(value, dict):
            for prefix in value:
                if not is_pattern(prefix):
                    raise ValueError(f"{prefix!r} is no beginning of a path: a slash, and stars for whole segments")
        return value

    @model_validator(mode="after")
    def _can_be_asked(self) -> EventLookSettings:
        address("path", self.path, OURS, "{idem.sent_at}")
        if not self.match:
            raise ValueError("match: name the place of our key, or every event of the account would be this call's")
        return self

    def build(self, slack: float = SLACK, kinds: Kinds | None = None) -> EventLookup:
        match = [self.match] if isinstance(self.match, str) else self.match
        types = {"": self.types} if isinstance(self.types, list) else self.types
        return EventLookup(
            path=compile_text(self.path, OURS),
            match=tuple(json_pointer.parse(each) for each in match),
            items=json_pointer.parse(self.items),
            object=json_pointer.parse(self.object),
            type=json_pointer.parse(self.type),
            types={prefix: None if names is False else tuple(names) for prefix, names in types.items()},
            order=self.order,
            created=tokens(self.created),
            page=None if self.page is None else self.page.build(MOST),
            kept=self.kept,
            slack=slack,
            kinds=kinds,
        )
