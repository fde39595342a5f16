"""Cancel by key: the provider is told to void whatever was sent under a key. No I/O.

Where it can do that, the cancel *makes* "not executed" true, whether the request has arrived or not. What stands all
the same, because it was too late, is a proof like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import Absent, Look, Pending, Proof, Succeeded
from idem.outbox.domain.provider import Question
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.body_encoding import MEDIA_TYPES, Encoding, encoded
from idem.outbox.providers.default_rules import ErrorShape
from idem.outbox.providers.lookup_targets import filled
from idem.outbox.providers.lookups import Facts, shown
from idem.outbox.providers.outcome_rules import Condition, Rule, StatusSet
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import Template, Text, fill
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING, Tokens

AS_SHOWN: Final = 200
"""The HTTP status under which the rules see an object that a cancel shows: as if a look-up had shown it."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The request, with the key in its path or body, and the answers that say "done".

    `done` are their statuses, `when` what their body must show. `object` is where an answer shows the object, and
    `match` the member of it that must be our key, if it has one.
    """

    path: Text
    body: Template | None = None
    method: str = "POST"
    done: StatusSet = outcome_rules.SUCCESS
    when: tuple[Condition, ...] = ()
    object: Tokens = ()
    match: Tokens | None = None

    def request(self, question: Question, encoding: Encoding) -> FrozenRequest:
        """The request. No header carries the key: under that the provider knows another one. Raises Unrenderable."""
        path = filled(self.path, {}, question.provider_key)
        headers = {"accept": "application/json"}
        content = None if self.body is None else fill(self.body.render({}), question.provider_key)
        if content is None:
            return FrozenRequest(self.method, path, headers, b"")
        headers["content-type"] = MEDIA_TYPES[encoding]
        return FrozenRequest(self.method, path, headers, encoded(content, encoding))

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[Look, str]:
        """What the answer says, and why in a few words. Never raises."""
        failed = facts.failed(answer)
        if not answer.complete:
            return failed, "the answer was cut short"
        said = self._standing(answer, question, facts.outcome)
        if isinstance(said, Succeeded | Pending):
            return said, "too late: the object stands"
        if self._done(answer, facts.errors):
            return Absent(), "cancelled: nothing stands under this key"
        if said is not None:
            return said, "too late: the provider had refused it"
        return failed, "the answer does not say that nothing stands"

    def _done(self, answer: Document, errors: ErrorShape) -> bool:
        if answer.status not in self.done or not all(each.holds(answer.find(each.at)) for each in self.when):
            return False
        if any(each.values or each.exists for each in self.when):
            return True
        # A proxy's page says nothing, least of all that a payment does not exist.
        if answer.status in outcome_rules.SUCCESS:
            return answer.readable or answer.blank
        return errors.fits(answer)

    def _standing(self, answer: Document, question: Question, outcome: tuple[Rule, ...]) -> Proof | None:
        thing = answer.find(self.object)
        if thing is MISSING:
            return None
        if self.match is not None and response.word(json_pointer.resolve(thing, self.match)) not in question.keys:
            return None
        return shown(Document(AS_SHOWN, answer.headers, thing), outcome, True)[0]
