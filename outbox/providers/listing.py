"""The provider's own list of everything that it made in a time, for the ledger check. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.provider import Item, Page
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.deployment_tag import Mark
from idem.outbox.providers.lookup_targets import filled, time_words
from idem.outbox.providers.lookups import GET, shown
from idem.outbox.providers.object_types import Kinds
from idem.outbox.providers.outcome_rules import Rule
from idem.outbox.providers.pages import BrokenList, Paging, listed
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import Text
from idem.outbox.providers.timestamps import moment
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING, Tokens


@dataclass(frozen=True, slots=True)
class Listing:
    """How the list is asked for, and where things stand in it.

    `items` is where the list stands; inside an item, `object` is what the outcome rules read. Inside that, `reference`
    is the provider's own, `key` ours, `status` its word for the state, `created` its time.
    """

    path: Text
    items: Tokens = ()
    object: Tokens = ()
    reference: Tokens | None = None
    key: Tokens | None = None
    status: Tokens | None = None
    created: Tokens | None = None
    page: Paging | None = None

    def request(self, since: float, until: float) -> FrozenRequest:
        """The first page. Raises Unrenderable."""
        # Both are rounded down, the end up: an object at the edge is there twice rather than never.
        words = {**time_words("since", since), **time_words("until", until + 1)}
        return FrozenRequest("GET", filled(self.path, words), GET, b"")

    def read(
        self,
        answer: Document,
        request: FrozenRequest,
        outcome: tuple[Rule, ...],
        mark: Mark | None,
        origins: Collection[str],
        kinds: Kinds | None = None,
    ) -> Page | None:
        """The objects of a page; None for an answer that is none. Never raises."""
        items = listed(answer, self.items, self.page)
        if answer.status not in outcome_rules.SUCCESS or items is None:
            return None
        found = tuple(self._item(item, answer, outcome, mark, kinds) for item in items)
        if self.page is None:
            return Page(found)
        try:
            return Page(found, self.page.following(answer, items, request, origins))
        except BrokenList as error:
            return Page(found, broken=str(error))

    def _item(
        self, item: Any, answer: Document, outcome: tuple[Rule, ...], mark: Mark | None, kinds: Kinds | None
    ) -> Item:
        thing = json_pointer.resolve(item, self.object)
        if thing is MISSING:
            return Item(None)
        said, _ = shown(Document(answer.status, answer.headers, thing), outcome)
        reference = response.reference(_find(thing, self.reference))
        key = response.word(_find(thing, self.key))
        return Item(
            reference=reference if said is None else reference or said.reference,
            key=key if key is not None or mark is None else mark.key(thing),
            said=said,
            status=response.word(_find(thing, self.status)) or (None if said is None else said.status),
            created=moment(_find(thing, self.created)),
            ours=None if mark is None else mark.ours(thing),
            kind=None if kinds is None else kinds.of(thing),
        )


def _find(thing: Any, tokens: Tokens | None) -> Any:
    return MISSING if tokens is None else json_pointer.resolve(thing, tokens)
