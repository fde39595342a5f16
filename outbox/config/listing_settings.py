"""`list` of a provider in idem.toml: everything that it made in a time, for the ledger check."""

from __future__ import annotations

from pydantic import Field, model_validator

from idem.outbox.config.outcome_settings import ObjectSettings, Pointer, tokens
from idem.outbox.config.page_settings import PageSettings, address
from idem.outbox.config.section import Section
from idem.outbox.providers.listing import Listing
from idem.outbox.providers.template import compile_text
from idem.outbox.values import json_pointer

OURS = frozenset({"since", "since_iso", "until", "until_iso"})

MOST = 1000
"""Pages of a walk: a busy day at a hundred objects a page."""


class ListSettings(Section):
    """The provider's own list of what it made, which `idem reconcile --since` compares with the ledger."""

    path: str = Field(
        description="Path and query of the GET, with {idem.since} and {idem.until} (POSIX seconds) or "
        "{idem.since_iso} and {idem.until_iso} (RFC 3339), as /payments?since={idem.since}&until={idem.until}."
    )
    items: Pointer = Field(default="", description='JSON pointer to the list, as "/data"; default the whole answer.')
    object: Pointer = Field(
        default="",
        description="JSON pointer, inside an item, to the object that the outcome rules read; default the item itself.",
    )
    reference: Pointer | None = Field(
        default=None,
        description="JSON pointer, inside the object, to the provider's reference; default where the provider's "
        "`object` says.",
    )
    key: Pointer | None = Field(
        default=None,
        description="JSON pointer, inside the object, to our provider key; default where `mark` says. Without it an "
        "object is matched by its reference alone.",
    )
    created: Pointer | None = Field(
        default=None,
        description="JSON pointer, inside the object, to its time (POSIX or RFC 3339); default none.",
    )
    page: PageSettings | None = Field(default=None, description="How the list goes on; default none: one page is all.")

    @model_validator(mode="after")
    def _is_bounded(self) -> ListSettings:
        words = address("path", self.path, OURS, "{idem.since} and {idem.until}")
        if not words & {"since", "since_iso"}:
            raise ValueError("path: without {idem.since} it would list everything that there ever was")
        return self

    def build(self, object: ObjectSettings) -> Listing:
        """`object` is the provider's own."""
        return Listing(
            path=compile_text(self.path, OURS),
            items=json_pointer.parse(self.items),
            object=json_pointer.parse(self.object),
            reference=tokens(self.reference if self.reference is not None else object.reference),
            key=tokens(self.key),
            status=tokens(object.status),
            created=tokens(self.created),
            page=None if self.page is None else self.page.build(MOST),
        )
