"""`lookup.by_events` of a provider in idem.toml: looks into its own list of events, which names our key even where no
answer ever came. No I/O.

One call makes several events, of one object and of others beside it (a payment, its charge, a balance): `types` says
which are about the object that the call made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import Absent, LookupOutcome, Proof, Refused
from idem.outbox.domain.provider import Question
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.listing import ListSettings
from idem.outbox.providers.lookup_targets import SLACK, TIMES, address, target
from idem.outbox.providers.object_types import counting
from idem.outbox.providers.outcome_rules import Rule
from idem.outbox.providers.pages import NextPage, listed
from idem.outbox.providers.path_patterns import is_pattern, nearest
from idem.outbox.providers.reading import GET, Facts, best, shown
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import compile_text
from idem.outbox.providers.timestamps import moment
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING
from idem.outbox.values.settings_base import Duration, Pointer, Pointers

OURS: Final = frozenset({"key", "path", *TIMES})

EventOrder: TypeAlias = Literal["newest_first", "oldest_first"]

KEPT: Final = 259200.0
"""Seconds. An event that the provider has thrown away would be read as one that never was: no look beyond this."""


class EventLookup(ListSettings):
    """The provider's list of events. It settles a call whose answer was lost: its events name our key."""

    path: str
    """Path and query of the GET, e.g. /v1/events?limit=100&created%5Bgte%5D={idem.sent_at}; also {idem.sent_at_iso},
    {idem.key} and {idem.path}."""
    match: Pointers
    """JSON pointers, inside an event, of which one must equal our key, e.g. "/request/idempotency_key" or
    "/data/object/metadata/idem_key"; no default."""
    type: Pointer = ("type",)
    """JSON pointer, inside an event, to its type; default "/type"."""
    types: list[str] | dict[str, list[str] | Literal[False]] = Field(default_factory=list)
    """Types that speak of the object that the call made, a star at the end for all that begin so; default all. Also a
    table by the beginning of the path of the call, e.g. {"/v1/refunds" = ["refund.*"]}: whole segments, a star for any
    one; the longest wins. Calls that fit none, or one that is false, are not asked about: no event is sure to come of
    them. One call makes events of other objects too."""
    order: EventOrder = "newest_first"
    """Order of the list: "newest_first" (default) or "oldest_first", and then it is read to its end."""
    kept: Duration = KEPT
    """Seconds for which the provider keeps its events; default 3d. Later idem does not ask: an event that is gone would
    look like one that never was."""

    @field_validator("types")
    @classmethod
    def _are_types(
        cls, value: list[str] | dict[str, list[str] | Literal[False]]
    ) -> list[str] | dict[str, list[str] | Literal[False]]:
        for each in value if isinstance(value, list) else [name for names in value.values() for name in names or ()]:
            if not each or "*" in each[:-1]:
                raise ValueError(f"{each!r} is not a type of events: write its name, or its beginning and one star")
        if isinstance(value, dict):
            for prefix in value:
                if not is_pattern(prefix):
                    raise ValueError(
                        f"{prefix!r} is not the beginning of a path: a slash, and stars for whole segments"
                    )
        return value

    @model_validator(mode="after")
    def _can_be_asked(self) -> EventLookup:
        address("path", self.path, OURS, "{idem.sent_at}")
        if not self.match:
            raise ValueError("match: name the place of our key, or every event of the account would be this call's")
        return self

    def concerns(self, question: Question) -> bool:
        """Events name a key that the request has named, or the idempotency key that it carried."""
        return question.carried or question.named

    def request(self, question: Question) -> FrozenRequest | None:
        """The request to make; None for a call that sent nothing, whose events are gone, or that `types` knows not.

        Raises Unrenderable.
        """
        if question.sent_at is None or question.asked_at - question.sent_at > self.kept - SLACK:
            return None
        if self._types(question) is None:
            return None
        path = target(compile_text(self.path, OURS), question)
        return None if path is None else FrozenRequest("GET", path, GET, b"")

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[LookupOutcome, str]:
        """What a page of events says, and why in a few words. Never raises."""
        failed = facts.failed(answer)
        if answer.status not in outcome_rules.SUCCESS:
            return failed, "the question failed"
        if self._list(answer) is None:
            return failed, "the answer does not contain a list of events"
        ours = self._ours(answer, question, facts)
        if not ours and facts.errors.is_error(answer):
            return failed, "an error beside the list of events"
        if not ours:
            return Absent(), "no event names our key"
        objects = self._objects(ours, answer, facts.outcome)
        if not objects:
            return failed, "events name our key, but no rule takes their object for an end"
        note = f"{len(objects)} objects have events with this key" if len(objects) > 1 else "found among the events"
        return best([(failed if said is None else said, note) for said in objects.values()])

    def following(self, answer: Document, question: Question, request: FrozenRequest, facts: Facts) -> NextPage | None:
        """The next page, until one has the newest event of the call. Raises BrokenList."""
        items = self._list(answer)
        if self.page is None or items is None or answer.status not in outcome_rules.SUCCESS:
            return None
        if self.order == "newest_first" and self._ours(answer, question, facts):
            return None
        return self.page.following(answer, items, request, facts.origins)

    def copies(self, answer: Document, question: Question, facts: Facts) -> int:
        """How many objects the events of this page show for one call."""
        if answer.status not in outcome_rules.SUCCESS:
            return 0
        return len(self._objects(self._ours(answer, question, facts), answer, facts.outcome))

    def _list(self, answer: Document) -> list[Any] | None:
        return listed(answer, self.items, self.page)

    def _ours(self, answer: Document, question: Question, facts: Facts) -> list[Any]:
        """The events of this call, newest first."""
        wanted, keys = self._types(question) or (), question.keys
        found = [
            item
            for item in self._list(answer) or []
            if self._counts(item, wanted)
            and counting(facts.object_types, json_pointer.resolve(item, self.object), question.path)
            and any(response.word(json_pointer.resolve(item, at)) in keys for at in self.match)
        ]
        if self.order == "oldest_first":
            found.reverse()
        if self.created is not None:
            times = [moment(json_pointer.resolve(item, self.created)) for item in found]
            if None not in times:
                # Stable: what has the same time stays in the order of the list.
                found = [item for _, item in sorted(zip(times, found, strict=True), key=lambda pair: -(pair[0] or 0))]
        return found

    def _types(self, question: Question) -> Sequence[str] | None:
        if isinstance(self.types, list):
            return self.types
        pattern = nearest(self.types, question.path)
        names = False if pattern is None else self.types[pattern]
        return None if names is False else names

    def _counts(self, item: Any, wanted: Sequence[str]) -> bool:
        kind = response.word(json_pointer.resolve(item, self.type))
        return outcome_rules.of_type(wanted, kind)

    def _objects(self, ours: list[Any], answer: Document, outcome: tuple[Rule, ...]) -> dict[str | None, Proof | None]:
        """The newest proof about each object, by its reference; None: a refusal that may be out of date."""
        found: dict[str | None, Proof | None] = {}
        newer = False
        for item in ours:
            thing = json_pointer.resolve(item, self.object)
            said = None if thing is MISSING else shown(Document(answer.status, answer.headers, thing), outcome, True)[0]
            if said is None:
                newer = True
            elif said.reference not in found:
                # A customer who was declined may have paid since, so an older refusal must not become the answer.
                found[said.reference] = None if newer and isinstance(said, Refused) else said
        return found
