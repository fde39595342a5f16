"""Look-ups: how a provider is asked about one call, and how far its answer is believed.

A look-up finds by our provider key, by that key where it serves as the reference of the object, or by the
provider's own id. Whatever is found must prove whose it is: a provider that ignores an unknown query parameter
lists everybody's payments.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import (
    Absent,
    CouldNotAsk,
    Look,
    Pending,
    Proof,
    Refused,
    Seen,
    Succeeded,
    name,
)
from idem.outbox.domain.provider import Question
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.default_rules import ErrorShape, retry_after
from idem.outbox.providers.lookup_targets import SLACK, ByPrefix, target
from idem.outbox.providers.object_types import Kinds, counting
from idem.outbox.providers.outcome_rules import Rule, Says
from idem.outbox.providers.pages import NextPage, Paging, listed
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import Text
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING, Tokens

WHOLE = 200
"""The one status whose body is all that the provider has to say: of others an empty list proves nothing."""

By: TypeAlias = Literal["id", "key", "reference"]

BEFORE = (Succeeded, Pending, CouldNotAsk, Refused, Absent)
"""Which reading of several objects counts: a refusal only if none of them says more, or is not understood."""

GET = {"accept": "application/json", "cache-control": "no-cache"}
"""The headers of every question. A cache on the way would answer with what was true before the call was made."""


@dataclass(frozen=True, slots=True)
class Facts:
    """How a provider's answers are read: its rules, the shape of its errors, and the longest wait in seconds that it
    may order."""

    outcome: tuple[Rule, ...]
    errors: ErrorShape
    longest_wait: float

    def failed(self, answer: Document) -> CouldNotAsk:
        """What an answer comes to that says nothing, with the wait that it orders."""
        return CouldNotAsk(retry_after(answer.headers, self.longest_wait))


class Way(Protocol):
    """A way to ask about one call: a GET, and how its answer is read."""

    def concerns(self, question: Question) -> bool:
        """Whether the provider can know the call by what this way asks for: the frozen request may lack it."""
        ...

    def request(self, question: Question) -> FrozenRequest | None:
        """The request to make, None if the row lacks what the question needs. Raises Unrenderable."""
        ...

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[Look, str]:
        """What the answer says, and why in a few words; of a page of a list, what this page says. Never raises."""
        ...

    def following(
        self, answer: Document, question: Question, request: FrozenRequest, origins: Collection[str]
    ) -> NextPage | None:
        """The next page that is needed. Raises BrokenList: what is not on the pages so far may still be there."""
        ...

    def copies(self, answer: Document, question: Question, outcome: tuple[Rule, ...]) -> int:
        """How many objects of the answer are this row's: more than one is a duplicate that somebody must see."""
        ...


@dataclass(frozen=True, slots=True)
class Lookup:
    """One way to ask: a GET.

    `object` is where the object stands in the answer. `match` is the member of the object that must equal the
    provider key (by id: the reference that we asked for, unless `match` is None, then the rule's reference is
    compared). `empty` is where an empty list says "nothing"; `absent` are statuses that say it, in the error shape.
    With `page` the list is walked, and what is on none of its pages is not there. With `kinds` only an object of the
    kind that the call is about counts.
    """

    by: By
    path: Text | ByPrefix
    object: Tokens = ()
    match: Tokens | None = None
    empty: Tokens | None = None
    absent: frozenset[int] = frozenset()
    page: Paging | None = None
    slack: float = SLACK
    kinds: Kinds | None = None

    def concerns(self, question: Question) -> bool:
        """By key: where the contract of now has the key. By reference: where the request names it at all."""
        return question.carried if self.by == "key" else question.named if self.by == "reference" else True

    def request(self, question: Question) -> FrozenRequest | None:
        """The request to make, None if the row lacks what the question needs. Raises Unrenderable."""
        if self.by == "id" and question.reference is None:
            return None
        path = target(self.path, question, self.slack)
        return None if path is None else FrozenRequest("GET", path, GET, b"")

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[Look, str]:
        """What the answer says, and why in a few words. Never raises."""
        failed = facts.failed(answer)
        if not answer.readable:
            return failed, "the answer is not readable" if answer.complete else "the answer was cut short"
        absent = outcome_rules.first((rule for rule in facts.outcome if rule.says is Says.ABSENT), answer, look=True)
        if absent is not None and absent.recognises:
            return Absent(), "the provider says that it has nothing"
        if answer.status in self.absent and facts.errors.fits(answer):
            return Absent(), "not found, in the provider's error shape"
        if answer.status not in outcome_rules.SUCCESS:
            return failed, "the question failed"
        # An error that came with a 2xx: what it left out of the list may be there all the same.
        doubtful = facts.errors.told(answer)
        if self.empty is not None and answer.find(self.empty) == []:
            if answer.status != WHOLE:
                return failed, f"an empty list with status {answer.status}, which is not the whole answer"
            return (failed, "an error beside an empty list") if doubtful else (Absent(), "an empty list")
        omitted = self.page is not None and self.page.omits_empty and doubtful
        if self.page is not None and (omitted or self._items(answer) is None):
            return failed, "the answer does not contain a list"
        ours = self._ours(answer, question)
        if not ours and self.page is not None:
            nothing = Absent(), "no object of the list carries our key"
            return (failed, "an error beside the list") if doubtful else nothing
        if not ours:
            return failed, "the answer shows nothing that carries our key"
        note = f"{len(ours)} objects carry this key" if len(ours) > 1 else "found"
        said = [
            self._conclude(Document(answer.status, answer.headers, found), question, facts.outcome, failed, note)
            for found in ours
        ]
        return best(said)

    def following(
        self, answer: Document, question: Question, request: FrozenRequest, origins: Collection[str]
    ) -> NextPage | None:
        """The next page, as long as none has shown the object. Raises BrokenList."""
        items = self._items(answer)
        if (
            self.page is None
            or items is None
            or answer.status not in outcome_rules.SUCCESS
            or self._ours(answer, question)
        ):
            return None
        return self.page.following(answer, items, request, origins)

    def copies(self, answer: Document, question: Question, outcome: tuple[Rule, ...]) -> int:
        """How many objects of the answer are this row's: more than one is a duplicate that somebody must see."""
        return len(self._ours(answer, question)) if answer.readable and answer.status in outcome_rules.SUCCESS else 0

    def _items(self, answer: Document) -> list[Any] | None:
        return listed(answer, self.object[:-1], self.page)

    def _ours(self, answer: Document, question: Question) -> list[Any]:
        if self.match is None:
            found = answer.find(self.object)
            return [] if found is MISSING or not counting(self.kinds, found, question.path) else [found]
        wanted = (question.reference,) if self.by == "id" else question.keys
        candidates: Any = [answer.find(self.object)]
        # An object that is an item of a list: ours may be another one of that list.
        if self.object and json_pointer.INDEX.fullmatch(self.object[-1]):
            siblings = answer.find(self.object[:-1])
            candidates = siblings if isinstance(siblings, list) else candidates
        return [
            item
            for item in candidates
            if response.word(json_pointer.resolve(item, self.match)) in wanted
            and counting(self.kinds, item, question.path)
        ]

    def _conclude(
        self, found: Document, question: Question, outcome: tuple[Rule, ...], failed: CouldNotAsk, note: str
    ) -> tuple[Look, str]:
        said, why = shown(found, outcome)
        if said is None:
            return failed, why
        if self.by == "id" and self.match is None and said.reference != question.reference:
            return failed, "the answer shows another object"
        return said, note


def shown(found: Document, outcome: tuple[Rule, ...], demanding: bool = False) -> tuple[Proof | None, str]:
    """The proof in an object that a look-up or a list has shown, or why there is none.

    `demanding`: the rule must demand something of the object, because nothing else says that this is one.
    """
    rule = outcome_rules.first(outcome_rules.about_objects(outcome), found, look=True)
    if rule is None or rule.says not in outcome_rules.PROOFS:
        return None, "no rule matches the object"
    if demanding and not rule.recognises:
        return None, "the rule demands nothing of the object"
    places = rule.places
    reference, status = places.read_reference(found.body), places.read_status(found.body)
    fields = places.read_fields(found.body)
    if rule.says is Says.REFUSED:
        return Refused(reference, status, fields), ""
    if places.reference is not None and reference is None:
        return None, "the object has no reference"
    return outcome_rules.exists(rule.says, reference, status, fields), ""


def best(readings: list[tuple[Look, str]]) -> tuple[Look, str]:
    """What counts of several objects of one call, in whatever order they are listed: an effect that exists is not
    answered with the refusal beside it."""
    return min(readings, key=lambda reading: (BEFORE.index(type(reading[0])), name(reading[0]) == "interim"))


def agree(readings: list[tuple[Look, str]]) -> tuple[Look, str]:
    """One look out of the readings of an answer whose question is not known: only what nothing contradicts."""
    said = [reading for reading in readings if not isinstance(reading[0], CouldNotAsk)]
    if said and all(look == said[0][0] for look, _ in said):
        return said[0]
    if said:
        return CouldNotAsk(), "the answer can be read in two ways"
    return readings[0] if readings else (CouldNotAsk(), "this provider is not asked")


def seen(answer: Document, errors: ErrorShape, note: str) -> Seen:
    """The observation behind a look or an outcome."""
    failed = not 200 <= answer.status < 300
    code, message = (errors.read_code(answer), errors.read_message(answer)) if failed else (None, None)
    return Seen(http_status=answer.status, note=note, code=code, started=True, message=message)
