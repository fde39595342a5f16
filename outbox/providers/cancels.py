"""`cancel_by_key` of a provider in idem.toml: how idem asks the provider to void what was sent under a key. No I/O.

Where it can do that, the cancel *makes* "not executed" true, whether the request has arrived or not. What stands all
the same, because it was too late, is a proof like any other.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import Absent, LookupOutcome, Pending, Proof, Succeeded
from idem.outbox.domain.provider import Question
from idem.outbox.providers import outcome_rules, response
from idem.outbox.providers.body_encoding import MEDIA_TYPES, Encoding, encoded
from idem.outbox.providers.errors import ErrorShape
from idem.outbox.providers.lookup_targets import address, filled
from idem.outbox.providers.outcome_rules import Rule
from idem.outbox.providers.reading import AS_SHOWN, Facts, shown
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import KEY, Template, compile_text, fill
from idem.outbox.values import canonical, json_pointer
from idem.outbox.values.json_pointer import MISSING
from idem.outbox.values.settings_base import Pointer, Section

OURS: Final = frozenset({"key"})


class Cancel(Section):
    """A request that makes "not executed" true. It burns the key: what is sent again gets a new one."""

    method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST"
    """HTTP method; default POST."""
    path: str
    """Path and query, e.g. /v2/payments/cancel; {idem.key} is here or in the body."""
    body: dict[str, Any] | None = None
    """Body, e.g. {idempotency_key = "{idem.key}"}; default none."""
    blocks_late_requests: bool = False
    """Whether it also stops a request that arrives after it; default false: then it counts only when nothing can be
    under way any more."""
    done: int | str | list[int | str] = "2xx"
    """HTTP statuses that say that nothing stands under the key; default "2xx". A 4xx must be in the error shape or show
    what `when` demands."""
    when: dict[str, Any] = Field(default_factory=dict)
    """What members of the body must be: JSON pointer to a value, a list of values, or {exists = true}; default
    nothing."""
    object: Pointer = ()
    """JSON pointer to the object in the answer, e.g. "/data/0"; default the whole answer."""
    match: Pointer | None = None
    """JSON pointer, inside the object, to what must equal the provider key (by id: the reference); default none.
    Without it a provider that ignores the query shows another caller's object."""

    @field_validator("done", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if not outcome_rules.statuses(value):
            raise ValueError(
                "an empty list is not a status, and no cancel would ever be done: name one, or leave it out"
            )
        return value

    @model_validator(mode="after")
    def _names_the_key(self) -> Cancel:
        words = address("path", self.path, OURS, "{idem.key}")
        outcome_rules.conditions(self.when)
        try:
            holes = Template.compile(canonical.plain_json(self.body), OURS).holes()
        except ValueError as error:
            raise ValueError(f"body: {error}") from None
        if any(hole.path != KEY or hole.optional for hole in holes):
            raise ValueError("body: a cancel knows no params, only {idem.key}")
        if not words and not holes:
            raise ValueError("it names no call: put {idem.key} into the path or the body")
        return self

    def content(self, provider_key: str) -> Any:
        """The body of the cancel, None where it has none. Raises Unrenderable."""
        return None if self.body is None else fill(Template.compile(self.body, OURS).render({}), provider_key)

    def request(self, question: Question, encoding: Encoding) -> FrozenRequest:
        """The request. No header carries the key: under that the provider knows another one. Raises Unrenderable."""
        path = filled(compile_text(self.path, OURS), {}, question.provider_key)
        headers = {"accept": "application/json"}
        content = self.content(question.provider_key)
        if content is None:
            return FrozenRequest(self.method, path, headers, b"")
        headers["content-type"] = MEDIA_TYPES[encoding]
        return FrozenRequest(self.method, path, headers, encoded(content, encoding))

    def read(self, answer: Document, question: Question, facts: Facts) -> tuple[LookupOutcome, str]:
        """What the answer says, and why in a few words. Never raises."""
        failed = facts.failed(answer)
        if not answer.complete:
            return failed, "the answer was cut short"
        said = self._current(answer, question, facts.outcome)
        if isinstance(said, Succeeded | Pending):
            return said, "too late: the object stands"
        if self._done(answer, facts.errors):
            return Absent(), "cancelled: nothing stands under this key"
        if said is not None:
            return said, "too late: the provider had refused it"
        return failed, "the answer does not say that nothing stands"

    def _done(self, answer: Document, errors: ErrorShape) -> bool:
        when = outcome_rules.conditions(self.when)
        if answer.status not in outcome_rules.statuses(self.done) or not all(
            each.holds(answer.find(each.at)) for each in when
        ):
            return False
        if any(each.values or each.exists for each in when):
            return True
        # A proxy's page says nothing, least of all that a payment does not exist.
        if answer.status in outcome_rules.SUCCESS:
            return answer.readable or answer.blank
        return errors.fits(answer)

    def _current(self, answer: Document, question: Question, outcome: tuple[Rule, ...]) -> Proof | None:
        thing = answer.find(self.object)
        if thing is MISSING:
            return None
        if self.match is not None and response.word(json_pointer.resolve(thing, self.match)) not in question.keys:
            return None
        return shown(Document(AS_SHOWN, answer.headers, thing), outcome, True)[0]
