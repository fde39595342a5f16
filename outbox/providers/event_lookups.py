"""Looks into a provider's own list of events, which names our key even where no answer ever came. No I/O.

One call makes several events, of one object and of others beside it (a payment, its charge, a balance): `types` says
which are about the object that the call made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import Absent, Look, Proof, Refused
from idem.outbox.domain.provider import Question
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.lookup_targets import SLACK, target
from idem.outbox.providers.lookups import GET, Facts, best, shown
from idem.outbox.providers.object_types import Kinds, counting
from idem.outbox.providers.outcome_rules import Rule
from idem.outbox.providers.pages import NextPage, Paging, listed
from idem.outbox.providers.path_patterns import nearest
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import Text
from idem.outbox.providers.timestamps import moment
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING, Tokens

Order: TypeAlias = Literal["newest_first", "oldest_first"]

KEPT: Final = 259200.0
"""Seconds. An event that the provider has thrown away would be read as one that never was: no look beyond this."""


@dataclass(frozen=True, slots=True)
class EventLookup:
    """Ask the provider's list of events.

    `items` is where the list stands; inside an item, `match` are the members of which one must equal a key of the
    call, `type` its type, `object` what the outcome rules read, `created` its time. `types` are those that count, by
    the pattern with which the path of the call begins ("" is every call); None: such a call leaves no sure event.
    `kept`: seconds for which the provider keeps its events. With `kinds` an event counts only if its object is of the
    kind that the call is about.
    """

    path: Text
    match: tuple[Tokens, ...]
    items: Tokens = ()
    object: Tokens = ()
    type: Tokens | None = None
    types: Mapping[str, tuple[str, ...] | None] = field(default_factory=lambda: {"": ()})
    order: Order = "newest_first"
    created: Tokens | None = None
    page: Paging | None = None
    kept: float = KEPT
    slack: float = SLACK
    kinds: Kinds | None = None

    def concerns(self, question: Question) -> bool:
        """Events name a key that the request has named, or the idempotency key that it carried."""
        return question.carried or question.named

    def request(self, question: Question) -> FrozenRequest | None:
        """The request to make; None for a call that sent nothing, whose events are gone, or that `types` knows not.

        Raises Unrenderable.
        """
        if question.sent_at is None or question.asked_at - question.sent_at > self.kept - self.slack:
            return None
        if self._types(question) is None:
            return None
        path = target(self.path, question, self.slack)
        return None if path is None else FrozenRequest("GET", path, GET, b"")

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[Look, str]:
        """What a page of events says, and why in a few words. Never raises."""
        failed = facts.failed(answer)
        if answer.status not in outcome_rules.SUCCESS:
            return failed, "the question failed"
        if self._list(answer) is None:
            return failed, "the answer does not contain a list of events"
        ours = self._ours(answer, question)
        if not ours and facts.errors.told(answer):
            return failed, "an error beside the list of events"
        if not ours:
            return Absent(), "no event names our key"
        objects = self._objects(ours, answer, facts.outcome)
        if not objects:
            return failed, "events name our key, but no rule takes their object for an end"
        note = f"{len(objects)} objects have events with this key" if len(objects) > 1 else "found among the events"
        return best([(failed if said is None else said, note) for said in objects.values()])

    def following(
        self, answer: Document, question: Question, request: FrozenRequest, origins: Collection[str]
    ) -> NextPage | None:
        """The next page, until one has the newest event of the call. Raises BrokenList."""
        items = self._list(answer)
        if self.page is None or items is None or answer.status not in outcome_rules.SUCCESS:
            return None
        if self.order == "newest_first" and self._ours(answer, question):
            return None
        return self.page.following(answer, items, request, origins)

    def copies(self, answer: Document, question: Question, outcome: tuple[Rule, ...]) -> int:
        """How many objects the events of this page show for one call."""
        if answer.status not in outcome_rules.SUCCESS:
            return 0
        return len(self._objects(self._ours(answer, question), answer, outcome))

    def _list(self, answer: Document) -> list[Any] | None:
        return listed(answer, self.items, self.page)

    def _ours(self, answer: Document, question: Question) -> list[Any]:
        """The events of this call, newest first."""
        wanted, keys = self._types(question) or (), question.keys
        found = [
            item
            for item in self._list(answer) or []
            if self._counts(item, wanted)
            and counting(self.kinds, json_pointer.resolve(item, self.object), question.path)
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

    def _types(self, question: Question) -> tuple[str, ...] | None:
        pattern = nearest(self.types, question.path)
        return None if pattern is None else self.types[pattern]

    def _counts(self, item: Any, wanted: tuple[str, ...]) -> bool:
        kind = None if self.type is None else response.word(json_pointer.resolve(item, self.type))
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
                # Whoever was declined may have paid since: an end that is no end must not become the answer.
                found[said.reference] = None if newer and isinstance(said, Refused) else said
        return found
