"""`lookup.by_key`, `by_reference` and `by_id` of a provider in idem.toml: how it is asked about one call. No I/O.

A look-up finds by our provider key, by that key where it serves as the reference of the object, or by the
provider's own id. The object that it finds must prove whose it is: a provider that ignores an unknown query parameter
lists the payments of every caller.
"""

from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import field_validator

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import Absent, CouldNotAsk, LookupOutcome
from idem.outbox.domain.provider import Question
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.lookup_targets import SEGMENTS, TIMES, address, longest_prefix, target
from idem.outbox.providers.object_types import counting
from idem.outbox.providers.outcome_rules import Rule, Says
from idem.outbox.providers.pages import NextPage, Paging, listed
from idem.outbox.providers.reading import GET, Facts, best, shown
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import compile_text
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING
from idem.outbox.values.settings_base import Pointer, Section

WHOLE = 200
"""The one status whose body is all that the provider has to say: of others an empty list proves nothing."""

LookupBy: TypeAlias = Literal["id", "key", "reference"]


class Lookup(Section):
    """One way to ask about a call: a GET. Its subclasses say by what."""

    by: ClassVar[LookupBy]
    ours: ClassVar[frozenset[str]] = frozenset({"key", "path", *TIMES, *SEGMENTS})

    path: str | dict[str, str]
    """Path and query of the GET, with {idem.key}, or by id {idem.reference}; also {idem.path} (of the call itself,
    without its query), {idem.segment.2} (a part of that path, 1 to 9) and {idem.sent_at} or {idem.sent_at_iso} (its
    first send, less 5 minutes, so that the provider's clock need not agree with ours). By id also a table by the
    beginning of the reference, as {pi_ = "/v1/payment_intents/{idem.reference}"}: the longest wins, and what fits none
    is not asked about."""
    object: Pointer = ()
    """JSON pointer to the object in the answer, e.g. "/data/0"; default the whole answer."""
    match: Pointer | None = None
    """JSON pointer, inside the object, to what must equal the provider key (by id: the reference); default none.
    Without it a provider that ignores the query shows another caller's object."""
    empty: Pointer | None = None
    """JSON pointer to the list that is empty where there is nothing, e.g. "/data"; default none."""
    absent: int | str | list[int | str] | None = None
    """HTTP statuses that, in the error shape, mean there is nothing; default 404, but none where `empty` or `page` is
    said, because a list's 404 is a wrong address."""
    page: Paging | None = None
    """How the list goes on that has the object; default none: one page is all."""

    @field_validator("absent", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if value is not None and value != []:
            outcome_rules.statuses(value)
        return value

    def check(self) -> None:
        """Raises ValueError: the look-up asks about no particular call, or its address cannot be used."""
        name, wanted = f"by_{self.by}", "reference" if self.by == "id" else "key"
        if isinstance(self.path, dict) and (self.by != "id" or not self.path):
            raise ValueError(f"{name}.path: a table is by the beginning of the reference, which by_id alone has")
        shown = f"{{idem.{wanted}}}"
        walks = self.page is not None and self.match is not None
        for path in self.path.values() if isinstance(self.path, dict) else [self.path]:
            words = address(f"{name}.path", path, self.ours, shown)
            if wanted not in words and (self.by == "id" or not walks):
                raise ValueError(f"{name}.path: it asks about no particular call: put {shown} into it")
        if self.page is not None and (
            self.match is None or not self.object or not json_pointer.INDEX.fullmatch(self.object[-1])
        ):
            raise ValueError(
                f'{name}.page: a list is walked by `match`, and `object` is an item of it, as object = "/data/0"'
            )

    def concerns(self, question: Question) -> bool:
        """By key: where the contract of now has the key. By reference: where the request names it at all."""
        return question.carried if self.by == "key" else question.named if self.by == "reference" else True

    def request(self, question: Question) -> FrozenRequest | None:
        """The request to make, None if the row lacks what the question needs. Raises Unrenderable."""
        if self.by == "id" and question.reference is None:
            return None
        text: str | None
        if isinstance(self.path, dict):
            prefix = longest_prefix(self.path, question.reference or "")
            text = None if prefix is None else self.path[prefix]
        else:
            text = self.path
        path = None if text is None else target(compile_text(text, self.ours), question)
        return None if path is None else FrozenRequest("GET", path, GET, b"")

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[LookupOutcome, str]:
        """What the answer says, and why in a few words. Never raises."""
        failed = facts.failed(answer)
        if not answer.readable:
            return failed, "the answer is not readable" if answer.complete else "the answer was cut short"
        absent = outcome_rules.first((rule for rule in facts.outcome if rule.says is Says.ABSENT), answer, lookup=True)
        if absent is not None and absent.recognises:
            return Absent(), "the provider says that it has nothing"
        if answer.status in self.nothing and facts.errors.fits(answer):
            return Absent(), "not found, in the provider's error shape"
        if answer.status not in outcome_rules.SUCCESS:
            return failed, "the question failed"
        # An error that came with a 2xx: what it left out of the list may be there all the same.
        doubtful = facts.errors.is_error(answer)
        if self.empty is not None and answer.find(self.empty) == []:
            if answer.status != WHOLE:
                return failed, f"an empty list with status {answer.status}, which is not the whole answer"
            return (failed, "an error beside an empty list") if doubtful else (Absent(), "an empty list")
        omitted = self.page is not None and self.page.omits_empty and doubtful
        if self.page is not None and (omitted or self._items(answer) is None):
            return failed, "the answer does not contain a list"
        ours = self._ours(answer, question, facts)
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

    def following(self, answer: Document, question: Question, request: FrozenRequest, facts: Facts) -> NextPage | None:
        """The next page, as long as none has shown the object. Raises BrokenList."""
        items = self._items(answer)
        if (
            self.page is None
            or items is None
            or answer.status not in outcome_rules.SUCCESS
            or self._ours(answer, question, facts)
        ):
            return None
        return self.page.following(answer, items, request, facts.origins)

    def copies(self, answer: Document, question: Question, facts: Facts) -> int:
        """How many objects of the answer are this row's: more than one is a duplicate that an operator must see."""
        return (
            len(self._ours(answer, question, facts))
            if answer.readable and answer.status in outcome_rules.SUCCESS
            else 0
        )

    @property
    def nothing(self) -> frozenset[int]:
        """The statuses that say that there is nothing."""
        if self.absent is None:
            return frozenset() if self.empty is not None or self.page is not None else frozenset({404})
        return outcome_rules.statuses(self.absent)

    def _items(self, answer: Document) -> list[Any] | None:
        return listed(answer, self.object[:-1], self.page)

    def _ours(self, answer: Document, question: Question, facts: Facts) -> list[Any]:
        if self.match is None:
            found = answer.find(self.object)
            return [] if found is MISSING or not counting(facts.object_types, found, question.path) else [found]
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
            and counting(facts.object_types, item, question.path)
        ]

    def _conclude(
        self, found: Document, question: Question, outcome: tuple[Rule, ...], failed: CouldNotAsk, note: str
    ) -> tuple[LookupOutcome, str]:
        said, why = shown(found, outcome)
        if said is None:
            return failed, why
        if self.by == "id" and self.match is None and said.reference != question.reference:
            return failed, "the answer shows another object"
        return said, note


class ByKey(Lookup):
    """By our provider key."""

    by = "key"


class ByReference(Lookup):
    """By our provider key where it serves as the reference of the object."""

    by = "reference"


class ById(Lookup):
    """By the provider's own id."""

    by = "id"
    ours = frozenset({"reference", "path", *TIMES, *SEGMENTS})
