"""Look-ups: how a provider is asked about one call, and how far its answer is believed.

A look-up finds by our provider key, by that key where it serves as the reference of the object, or by the
provider's own id. Whatever is found must prove whose it is: a provider that ignores an unknown query parameter
lists everybody's payments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from idem.outbox import pointer
from idem.outbox.contract import Contract, FrozenRequest, Question
from idem.outbox.outcomes import Absent, CouldNotAsk, Look, Pending, Refused, Seen, Succeeded, name
from idem.outbox.pointer import MISSING, Tokens
from idem.outbox.providers import document, rules
from idem.outbox.providers.defaults import ErrorShape, retry_after
from idem.outbox.providers.document import Document
from idem.outbox.providers.rules import Rule, Says
from idem.outbox.providers.template import Text, fill, render_path

By: TypeAlias = Literal["id", "key", "reference"]

BEFORE = (Succeeded, Pending, CouldNotAsk, Refused, Absent)
"""Which reading of several objects counts: a refusal only if none of them says more, or is not understood."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """One way to ask: a GET.

    `object` is where the object stands in the answer. `match` is the member of the object that must equal the
    provider key (by id: the reference that we asked for, unless `match` is None, then the rule's reference is
    compared). `empty` is where an empty list says "nothing"; `absent` are statuses that say it, in the error shape.
    """

    by: By
    path: Text
    object: Tokens = ()
    match: Tokens | None = None
    empty: Tokens | None = None
    absent: frozenset[int] = frozenset()

    def request(self, question: Question) -> FrozenRequest | None:
        """The request to make, None if the row lacks what the question needs. Raises Unrenderable."""
        if self.by == "id" and question.reference is None:
            return None
        path = render_path(self.path, {"idem": {"reference": question.reference or ""}})
        return FrozenRequest("GET", fill(path, question.provider_key), {"accept": "application/json"}, b"")

    def read(
        self,
        answer: Document,
        question: Question,
        outcome: tuple[Rule, ...],
        errors: ErrorShape,
        contract: Contract,
    ) -> tuple[Look, str]:
        """What the answer says, and why in a few words. Never raises."""
        failed = CouldNotAsk(retry_after(answer.headers, contract.retry_after_cap))
        if not answer.readable:
            return failed, "the answer is not readable" if answer.complete else "the answer was cut short"
        absent = rules.first((rule for rule in outcome if rule.says is Says.ABSENT), answer, look=True)
        if absent is not None and absent.recognises:
            return Absent(), "the provider says that it has nothing"
        if answer.status in self.absent and errors.fits(answer):
            return Absent(), "not found, in the provider's error shape"
        if answer.status not in rules.SUCCESS:
            return failed, "the question failed"
        if self.empty is not None and answer.find(self.empty) == []:
            return Absent(), "an empty list"
        ours = self._ours(answer, question)
        if not ours:
            return failed, "the answer shows nothing that carries our key"
        note = f"{len(ours)} objects carry this key" if len(ours) > 1 else "found"
        said = [
            self._conclude(Document(answer.status, answer.headers, found), question, outcome, failed, note)
            for found in ours
        ]
        # In whatever order they are listed: an effect that exists is not answered with the refusal beside it.
        return min(said, key=lambda reading: (BEFORE.index(type(reading[0])), name(reading[0]) == "interim"))

    def copies(self, answer: Document, question: Question) -> int:
        """How many objects of the answer are this row's: more than one is a duplicate that somebody must see."""
        return len(self._ours(answer, question)) if answer.readable and answer.status in rules.SUCCESS else 0

    def _ours(self, answer: Document, question: Question) -> list[Any]:
        if self.match is None:
            found = answer.find(self.object)
            return [] if found is MISSING else [found]
        wanted = question.reference if self.by == "id" else question.provider_key
        candidates: Any = [answer.find(self.object)]
        # An object that is an item of a list: ours may be another one of that list.
        if self.object and pointer.INDEX.fullmatch(self.object[-1]):
            siblings = answer.find(self.object[:-1])
            candidates = siblings if isinstance(siblings, list) else candidates
        return [item for item in candidates if document.word(pointer.resolve(item, self.match)) == wanted]

    def _conclude(
        self, found: Document, question: Question, outcome: tuple[Rule, ...], failed: CouldNotAsk, note: str
    ) -> tuple[Look, str]:
        rule = rules.first((rule for rule in outcome if rule.says is not Says.ABSENT), found, look=True)
        if rule is None or rule.says not in rules.PROOFS:
            return failed, "no rule matches the object"
        places = rule.places
        reference, status = places.read_reference(found.body), places.read_status(found.body)
        if self.by == "id" and self.match is None and reference != question.reference:
            return failed, "the answer shows another object"
        fields = places.read_fields(found.body)
        if rule.says is Says.REFUSED:
            return Refused(reference, status, fields), note
        if places.reference is not None and reference is None:
            return failed, "the object has no reference"
        return rules.exists(rule.says, reference, status, fields), note


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
    code = None if 200 <= answer.status < 300 else errors.read_code(answer)
    return Seen(http_status=answer.status, note=note, code=code, started=True)
