"""`lookup` of a provider in idem.toml: how it is asked about a call."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from idem.outbox import pointer
from idem.outbox.configuration.outcome_settings import Pointer, tokens
from idem.outbox.providers import rules
from idem.outbox.providers.looks import By, Lookup
from idem.outbox.providers.template import Hole, compile_text
from idem.outbox.section import Duration, Section


class LookSettings(Section):
    """One way to ask about a call."""

    path: str = Field(description="Path and query of the GET, with {idem.key}, or by id {idem.reference}.")
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
        "`empty` is said, because a list's 404 is a wrong address.",
    )

    @field_validator("absent", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if value is not None and value != []:
            rules.statuses(value)
        return value

    def build(self, by: By) -> Lookup:
        absent = self.absent
        if absent is None:
            absent = [] if self.empty is not None else [404]
        return Lookup(
            by=by,
            path=compile_text(self.path, self.ours(by)),
            object=pointer.parse(self.object),
            match=tokens(self.match),
            empty=tokens(self.empty),
            absent=rules.statuses(absent),
        )

    @staticmethod
    def ours(by: By) -> frozenset[str]:
        return frozenset({"reference"} if by == "id" else {"key"})


class LookupSettings(Section):
    """Whether the provider can be asked, and how far its "nothing" is believed."""

    horizon: Duration = Field(
        default=0.0,
        description="Seconds after which an effect is sure to be visible to a look-up; default 0s: at once.",
    )
    agree: int = Field(default=2, ge=1, description="Looks that must agree on an absence; default 2.")
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

    @model_validator(mode="after")
    def _asks_about_this_row(self) -> LookupSettings:
        for by, look in self.ways():
            name, (wanted,) = f"by_{by}", LookSettings.ours(by)
            try:
                holes = [part for part in compile_text(look.path, look.ours(by)) if isinstance(part, Hole)]
            except ValueError as error:
                raise ValueError(f"{name}.path: {error}") from None
            if not look.path.startswith("/"):
                raise ValueError(f"{name}.path: it begins with a slash")
            if ("idem", wanted) not in [hole.path for hole in holes]:
                raise ValueError(f"{name}.path: it asks about no particular call: put {{idem.{wanted}}} into it")
            if any(hole.path[0] != "idem" or hole.optional for hole in holes):
                raise ValueError(f"{name}.path: a look-up knows no params, only {{idem.{wanted}}}")
        return self

    def ways(self) -> list[tuple[By, LookSettings]]:
        """The ways to ask that are said, best first: the provider's own id leaves no doubt."""
        named: list[tuple[By, LookSettings | None]] = [
            ("id", self.by_id),
            ("key", self.by_key),
            ("reference", self.by_reference),
        ]
        return [(by, look) for by, look in named if look is not None]
