"""How the answers to questions about one call are read: what an object proves, and which of several counts."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import (
    Absent,
    CouldNotAsk,
    LookupOutcome,
    Pending,
    Proof,
    Refused,
    Seen,
    Succeeded,
    name,
)
from idem.outbox.domain.provider import Question
from idem.outbox.providers import outcome_rules
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.errors import ErrorShape, retry_after
from idem.outbox.providers.object_types import ObjectTypes
from idem.outbox.providers.outcome_rules import NO_PLACES, Rule, RulePlaces
from idem.outbox.providers.pages import NextPage
from idem.outbox.providers.response import Document

AS_SHOWN: Final = 200
"""The HTTP status with which the rules read the object of an event or of a cancel, as if a look-up had shown it."""

NO_ERRORS: Final = ErrorShape()

BEFORE = (Succeeded, Pending, CouldNotAsk, Refused, Absent)
"""Which reading of several objects counts: a refusal only if none of them says more, or is not understood."""

GET = {"accept": "application/json", "cache-control": "no-cache"}
"""The headers of every question. A cache on the way would answer with what was true before the call was made."""


@dataclass(frozen=True, slots=True)
class Facts:
    """How a provider's answers are read: its rules, the shape of its errors, the longest wait in seconds that it may
    order, where values are in its objects, the types of these, the tag with the name of this deployment, and the
    origins to which a list may lead."""

    outcome: tuple[Rule, ...]
    errors: ErrorShape = NO_ERRORS
    longest_wait: float = 0.0
    object: RulePlaces = NO_PLACES
    object_types: ObjectTypes | None = None
    tag: DeploymentTag | None = None
    deployment: str = ""
    origins: Collection[str] = ()

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

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[LookupOutcome, str]:
        """What the answer says, and why in a few words; of a page of a list, what this page says. Never raises."""
        ...

    def following(self, answer: Document, question: Question, request: FrozenRequest, facts: Facts) -> NextPage | None:
        """The next page that is needed. Raises BrokenList: what is not on the pages so far may still be there."""
        ...

    def copies(self, answer: Document, question: Question, facts: Facts) -> int:
        """How many objects of the answer are this row's: more than one is a duplicate that an operator must see."""
        ...


def shown(found: Document, outcome: tuple[Rule, ...], demanding: bool = False) -> tuple[Proof | None, str]:
    """The proof in an object that a look-up or a list has shown, or why there is none.

    `demanding`: the rule must demand something of the object, because nothing else says that this is one.
    """
    rule = outcome_rules.first(outcome_rules.about_objects(outcome), found, lookup=True)
    if rule is None or rule.says not in outcome_rules.PROOFS:
        return None, "no rule matches the object"
    if demanding and not rule.recognises:
        return None, "the rule demands nothing of the object"
    proof = outcome_rules.proof(rule, found.body)
    return proof, "the object has no reference" if proof is None else ""


def best(readings: list[tuple[LookupOutcome, str]]) -> tuple[LookupOutcome, str]:
    """Which of several objects of one call counts, in any order of the list: an effect that exists is not
    answered with the refusal beside it."""
    return min(readings, key=lambda reading: (BEFORE.index(type(reading[0])), name(reading[0]) == "interim"))


def agree(readings: list[tuple[LookupOutcome, str]]) -> tuple[LookupOutcome, str]:
    """One look out of the readings of an answer whose question is not known: only what nothing contradicts."""
    said = [reading for reading in readings if not isinstance(reading[0], CouldNotAsk)]
    if said and all(lookup == said[0][0] for lookup, _ in said):
        return said[0]
    if said:
        return CouldNotAsk(), "the answer can be read in two ways"
    return readings[0] if readings else (CouldNotAsk(), "this provider is not asked")


def seen(answer: Document, errors: ErrorShape, note: str) -> Seen:
    """The observation behind a look or an outcome."""
    failed = not 200 <= answer.status < 300
    code, message = (errors.read_code(answer), errors.read_message(answer)) if failed else (None, None)
    return Seen(http_status=answer.status, note=note, code=code, started=True, message=message)
