"""`list` of a provider in idem.toml: everything that it made in a time, for the ledger check. No I/O."""

from __future__ import annotations

from typing import Any, Final

from pydantic import model_validator

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.provider import Item, Page
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.lookup_targets import address, filled, time_words
from idem.outbox.providers.pages import BrokenList, Paging, listed
from idem.outbox.providers.reading import GET, Facts, shown
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import compile_text
from idem.outbox.providers.timestamps import moment
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING
from idem.outbox.values.settings_base import Pointer, Section

OURS: Final = frozenset({"since", "since_iso", "until", "until_iso"})

MOST: Final = 1000
"""Pages of a walk: a busy day at a hundred objects a page."""


class ListSettings(Section):
    """A list of the provider's, and what stands in its items."""

    items: Pointer = ()
    """JSON pointer to the list, e.g. "/data"; default the whole answer."""
    object: Pointer = ()
    """JSON pointer, inside an item, to the object that the outcome rules read, e.g. "/data/object"; default the item
    itself."""
    created: Pointer | None = None
    """JSON pointer to the time (POSIX or RFC 3339) of an object of the list, or of an event where a page of events is
    not in order; default none."""
    page: Paging | None = None
    """How the list goes on; default none: one page is all."""


class Listing(ListSettings):
    """The provider's own list of what it made, which `idem reconcile --since` compares with the ledger."""

    path: str
    """Path and query of the GET, with {idem.since} and {idem.until} (POSIX seconds) or {idem.since_iso} and
    {idem.until_iso} (RFC 3339), e.g. /payments?since={idem.since}&until={idem.until}."""
    reference: Pointer | None = None
    """JSON pointer, inside the object, to the provider's reference; default where the provider's `object` says."""
    key: Pointer | None = None
    """JSON pointer, inside the object, to our provider key; default where `deployment_tag` says. Without it an object
    is matched by its reference alone."""

    @model_validator(mode="after")
    def _is_bounded(self) -> Listing:
        words = address("path", self.path, OURS, "{idem.since} and {idem.until}")
        if not words & {"since", "since_iso"}:
            raise ValueError("path: without {idem.since} it would list everything that there ever was")
        return self

    def request(self, since: float, until: float) -> FrozenRequest:
        """The first page. Raises Unrenderable."""
        # Both are rounded down, the end up: an object at the edge is there twice rather than never.
        words = {**time_words("since", since), **time_words("until", until + 1)}
        return FrozenRequest("GET", filled(compile_text(self.path, OURS), words), GET, b"")

    def read(self, answer: Document, request: FrozenRequest, facts: Facts) -> Page | None:
        """The objects of a page; None for an answer that is none. Never raises."""
        items = listed(answer, self.items, self.page)
        if answer.status not in outcome_rules.SUCCESS or items is None:
            return None
        found = tuple(self._item(item, answer, facts) for item in items)
        if self.page is None:
            return Page(found)
        try:
            return Page(found, self.page.following(answer, items, request, facts.origins, MOST))
        except BrokenList as error:
            return Page(found, broken=str(error))

    def _item(self, item: Any, answer: Document, facts: Facts) -> Item:
        thing = json_pointer.resolve(item, self.object)
        if thing is MISSING:
            return Item(None)
        said, _ = shown(Document(answer.status, answer.headers, thing), facts.outcome)
        at = facts.object.reference if self.reference is None else self.reference
        reference = response.reference(json_pointer.resolve(thing, at))
        key, tag = response.word(json_pointer.resolve(thing, self.key)), facts.tag
        return Item(
            reference=reference if said is None else reference or said.reference,
            key=key if key is not None or tag is None else tag.key(thing),
            said=said,
            status=facts.object.read_status(thing) or (None if said is None else said.status),
            created=moment(json_pointer.resolve(thing, self.created)),
            ours=None if tag is None else tag.ours(thing, facts.deployment),
            kind=None if facts.object_types is None else facts.object_types.of(thing),
        )
