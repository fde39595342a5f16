"""`lookup` of a provider in idem.toml: how it is asked about a call."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from idem.outbox.config.event_look_settings import EventLookSettings
from idem.outbox.config.outcome_settings import Pointer, tokens
from idem.outbox.config.page_settings import PageSettings, address
from idem.outbox.config.section import Duration, Section
from idem.outbox.providers import outcome_rules
from idem.outbox.providers.lookup_targets import SEGMENTS, SLACK, TIMES, ByPrefix
from idem.outbox.providers.lookups import By, Lookup
from idem.outbox.providers.object_types import Kinds
from idem.outbox.providers.pages import MOST
from idem.outbox.providers.template import compile_text
from idem.outbox.values import json_pointer


class LookSettings(Section):
    """One way to ask about a call."""

    path: str | dict[str, str] = Field(
        description="Path and query of the GET, with {idem.key}, or by id {idem.reference}; also {idem.path} (of the "
        "call itself, without its query), {idem.segment.2} (a part of that path, 1 to 9) and {idem.sent_at} or "
        "{idem.sent_at_iso} (its first send, less `slack`). By id also a table by the beginning of the reference, as "
        '{pi_ = "/v1/payment_intents/{idem.reference}"}: the '
        "longest wins, and what fits none is not asked about."
    )
    object: Pointer = Field(
        default="", description='JSON pointer to the object in the answer, as "/data/0"; default the whole answer.'
    )
    match: Pointer | None = Field(
        default=None,
        description="JSON pointer, inside the object, to what must equal the provider key (by id: the reference); "
        "default none. Without it a provider that ignores the query shows somebody else's object.",
    )
    empty: Pointer | None = Field(
        default=None,
        description='JSON pointer to the list that is empty where there is nothing, as "/data"; default none.',
    )
    absent: int | str | list[int | str] | None = Field(
        default=None,
        description="HTTP statuses that, in the error shape, mean there is nothing; default 404, but none where "
        "`empty` or `page` is said, because a list's 404 is a wrong address.",
    )
    page: PageSettings | None = Field(
        default=None, description="How the list goes on that has the object; default none: one page is all."
    )

    @field_validator("absent", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if value is not None and value != []:
            outcome_rules.statuses(value)
        return value

    def check(self, by: By) -> None:
        """Raises ValueError: it asks about no particular call, or nobody could ask like this."""
        name, wanted = f"by_{by}", "reference" if by == "id" else "key"
        if isinstance(self.path, dict) and (by != "id" or not self.path):
            raise ValueError(f"{name}.path: a table is by the beginning of the reference, which by_id alone has")
        shown = f"{{idem.{wanted}}}"
        walks = self.page is not None and self.match is not None
        for path in self.path.values() if isinstance(self.path, dict) else [self.path]:
            words = address(f"{name}.path", path, self.ours(by), shown)
            if wanted not in words and (by == "id" or not walks):
                raise ValueError(f"{name}.path: it asks about no particular call: put {shown} into it")
        if self.page is not None:
            at = json_pointer.parse(self.object)
            if self.match is None or not at or not json_pointer.INDEX.fullmatch(at[-1]):
                raise ValueError(
                    f'{name}.page: a list is walked by `match`, and `object` is an item of it, as object = "/data/0"'
                )

    def build(self, by: By, slack: float = SLACK, kinds: Kinds | None = None) -> Lookup:
        absent = self.absent
        if absent is None:
            absent = [] if self.empty is not None or self.page is not None else [404]
        ours = self.ours(by)
        return Lookup(
            by=by,
            path=ByPrefix(tuple((prefix, compile_text(path, ours)) for prefix, path in self.path.items()))
            if isinstance(self.path, dict)
            else compile_text(self.path, ours),
            object=json_pointer.parse(self.object),
            match=tokens(self.match),
            empty=tokens(self.empty),
            absent=outcome_rules.statuses(absent),
            page=None if self.page is None else self.page.build(MOST),
            slack=slack,
            kinds=kinds,
        )

    @staticmethod
    def ours(by: By) -> frozenset[str]:
        return frozenset({"reference" if by == "id" else "key", "path", *TIMES, *SEGMENTS})


class LookupSettings(Section):
    """Whether the provider can be asked, and how far its "nothing" is believed."""

    horizon: Duration = Field(
        default=0.0,
        description="Seconds after which an effect is sure to be visible to a look-up; default 0s: at once.",
    )
    agree: int = Field(default=2, ge=1, description="Looks that must agree on an absence; default 2.")
    slack: Duration = Field(
        default=SLACK,
        description="Seconds that {idem.sent_at} lies before the first send; default 5m, so that the provider's clock "
        "need not agree with ours.",
    )
    by_key: LookSettings | None = Field(
        default=None, description="How to ask by the provider key; default not possible."
    )
    by_reference: LookSettings | None = Field(
        default=None,
        description="How to ask by our reference, which is the provider key in the request; default not possible.",
    )
    by_id: LookSettings | None = Field(
        default=None, description="How to ask by the provider's own id, once it is known; default not possible."
    )
    by_events: EventLookSettings | None = Field(
        default=None, description="How to ask the provider's own list of events; default not possible."
    )

    @model_validator(mode="after")
    def _asks_about_this_row(self) -> LookupSettings:
        for by, look in self.ways():
            look.check(by)
        return self

    def ways(self) -> list[tuple[By, LookSettings]]:
        """The ways to ask for the object that are said, best first: the provider's own id leaves no doubt."""
        named: list[tuple[By, LookSettings | None]] = [
            ("id", self.by_id),
            ("key", self.by_key),
            ("reference", self.by_reference),
        ]
        return [(by, look) for by, look in named if look is not None]
