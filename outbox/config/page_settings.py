"""`page` of a list in idem.toml: how the list goes on. Used by look-ups, the list of events and the ledger check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from idem.outbox.config.outcome_settings import Pointer, tokens
from idem.outbox.config.section import Section
from idem.outbox.providers.lookup_targets import filled, time_words
from idem.outbox.providers.pages import Paging, Style
from idem.outbox.providers.template import Hole, Text, compile_text
from idem.outbox.values import json_pointer
from idem.outbox.values.errors import Unrenderable

NEEDED: Final[Mapping[Style, frozenset[str]]] = {
    "after_id": frozenset({"parameter"}),
    "cursor": frozenset({"parameter", "next"}),
    "link": frozenset(),
    "offset": frozenset({"parameter"}),
}

OF_STYLE: Final[Mapping[Style, frozenset[str]]] = {
    "after_id": frozenset({"parameter", "id"}),
    "cursor": frozenset({"parameter", "next"}),
    "link": frozenset({"next"}),
    "offset": frozenset({"parameter", "step", "first"}),
}


class PageSettings(Section):
    """How a list goes on. What is on none of its pages is not there; what was not read to its end says nothing."""

    style: Style = Field(
        description='"after_id": the id of the last item is a query parameter; "cursor": a text of the answer is; '
        '"link": the answer names the next address; "offset": a number is.'
    )
    parameter: str | None = Field(
        default=None, min_length=1, description="Name of the query parameter, as starting_after; no default."
    )
    next: Pointer | None = Field(
        default=None,
        description='JSON pointer to the cursor, as "/cursor", or to the next address; missing or null there is the '
        "end. Default for link: the Link header (rel=next). An address elsewhere than at the "
        "accounts of this provider is not followed.",
    )
    more: Pointer | None = Field(
        default=None,
        description='JSON pointer to what is true while the list goes on, as "/has_more"; default none: an empty page '
        "is the end, or one that names no next.",
    )
    id: Pointer = Field(
        default="/id", description='For after_id: JSON pointer, inside an item, to its id; default "/id".'
    )
    step: Literal["items", "pages"] = Field(
        default="items", description='For offset: what the number counts, "items" (default) or "pages".'
    )
    first: int = Field(default=0, ge=0, description="For offset: the number of the first page; default 0.")
    omits_empty: bool = Field(
        default=False,
        description="Whether an empty list is left out of the answer, as with Square; default false: an answer without "
        "the list says nothing.",
    )
    most: int | None = Field(
        default=None,
        ge=1,
        description="Pages that are read; default 20, for the ledger check 1000. A longer list could not be asked.",
    )

    @model_validator(mode="after")
    def _fits_its_style(self) -> PageSettings:
        said = {name for name in ("parameter", "next", "id", "step", "first") if name in self.model_fields_set}
        if missing := sorted(NEEDED[self.style] - said):
            raise ValueError(f'page: style "{self.style}" needs {" and ".join(missing)}')
        if unused := sorted(said - OF_STYLE[self.style]):
            raise ValueError(f'page: style "{self.style}" has no {" and no ".join(unused)}')
        if self.id == "":
            raise ValueError("page: id is a member of the item, not the whole of it")
        return self

    def build(self, most: int) -> Paging:
        """`most`: the pages that are read where nothing is said."""
        return Paging(
            style=self.style,
            parameter=self.parameter or "",
            at=tokens(self.next),
            more=tokens(self.more),
            id=json_pointer.parse(self.id),
            step=self.step,
            begin=self.first,
            most=most if self.most is None else self.most,
            omits_empty=self.omits_empty,
        )


def address(name: str, path: str, ours: frozenset[str], what: str) -> set[str]:
    """The names of ours in the path of a question. Raises ValueError, naming the setting: nobody could ask there.

    `what` are the words that it may have, for people.
    """
    try:
        text: Text = compile_text(path, ours)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    holes = [part for part in text if isinstance(part, Hole)]
    if not path.startswith(("/", "{idem.path}")):
        raise ValueError(f"{name}: it begins with a slash")
    if any(hole.path[0] != "idem" or hole.optional for hole in holes):
        raise ValueError(f"{name}: a look-up knows no params, only {what}")
    sample: dict[str, Any] = {"reference": "r", "path": "/p", "segment": {str(number): "s" for number in range(1, 10)}}
    for each in ("sent_at", "since", "until"):
        sample |= time_words(each, 0)
    try:
        filled(text, sample, "k")
    except Unrenderable as error:
        raise ValueError(f"{name}: {error}; a bracket is written %5B or %5D") from None
    return {".".join(hole.path[1:]) for hole in holes}
