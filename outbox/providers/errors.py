"""What an answer says that no rule of the contract matches: the design's table of outcomes, for HTTP.

The background of each status is RFC 9110, 6585 and 8470. Whatever is not listed is Ambiguous.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from pydantic import Field, model_validator

from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Outcome, Refused
from idem.outbox.providers import response
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says, said_once, spellings
from idem.outbox.providers.response import Document
from idem.outbox.values.json_pointer import MISSING, Tokens
from idem.outbox.values.settings_base import Pointer, Pointers, Section

CONFIG: Final = frozenset({401, 405, 406, 411, 415, 421, 425, 426, 428, 431, 501, 505, 511})
"""Our credentials, our address, a proxy: says nothing about this effect, and the next row will hear the same."""

REQUEST: Final = frozenset({400, 403, 404, 413, 414, 417, 422})
"""In the provider's own error shape: it has read this request and does not take it as it is."""

NO_PROOF: Final = frozenset({408, 409, 423, 424, 429})
"""Another attempt may be in flight, or something behind the provider failed; 408 also comes from load balancers
whose upstream was slow. 429 unless the contract says that the limiter stands before execution."""

REGISTERED: Final = frozenset(int(status) for status in HTTPStatus)
"""A proxy's own codes (444, 460, 499 ...) say that a line broke, perhaps after the request was handed on."""

DECLINED: Final = 402

FAILURES: Final = frozenset(range(400, 600))

SECONDS: Final = re.compile(r"[0-9]+")
HTTP_DATE: Final = re.compile(
    r"[A-Za-z]{3}, [0-9]{2} [A-Za-z]{3} [0-9]{4} [0-9:]{8} GMT"  # IMF-fixdate
    r"|[A-Za-z]{6,9}, [0-9]{2}-[A-Za-z]{3}-[0-9]{2} [0-9:]{8} GMT"  # RFC 850
    r"|[A-Za-z]{3} [A-Za-z]{3} [0-9 ][0-9] [0-9:]{8} [0-9]{4}"  # asctime
)


class ErrorShape(Section):
    """How the provider's own errors look. Without a shape nothing counts as the provider's: every 4xx may be a
    proxy's. What stands at `code` and `message` becomes the fields of a refusal.
    """

    shape: Pointers = ()
    """JSON pointer that every error of the provider itself has, e.g. "/error/code", or a list where they look in
    several ways; default none. It tells the provider's 404 from a proxy's."""
    code: Pointers = ()
    """JSON pointer to the error code, or a list of which the first that is there counts; default none."""
    message: Pointers = ()
    """JSON pointer to the text for people, or such a list; default none."""
    reference: Pointer | None = None
    """JSON pointer to the reference of a refused object, where errors have one; default none."""
    codes: dict[Says, list[int | str]] = Field(default_factory=dict)
    """What the codes of a 4xx or 5xx in the error shape mean, by the words of a rule's `says`: { refused =
    ["card_declined"] }. Read after the rules of `outcome`; default none."""

    @model_validator(mode="after")
    def _are_codes(self) -> ErrorShape:
        if self.codes and not (self.shape and self.code):
            raise ValueError("codes are read at `code`, in errors that have the `shape`: say both")
        if Says.LATER_FACT in self.codes:
            raise ValueError("an error is not a later_fact, which only events tell")
        said_once("code", self.codes)
        return self

    def fits(self, answer: Document) -> bool:
        return _first(answer, self.shape) is not MISSING

    def is_error(self, answer: Document) -> bool:
        """Whether the answer holds an error: its member is there and is not empty, unlike `"error": null`."""
        found = (answer.find(each) for each in self.shape)
        return any(value is not MISSING and value not in (None, "", [], {}) for value in found)

    def read_code(self, answer: Document) -> str | None:
        return response.word(_first(answer, self.code))

    def read_message(self, answer: Document) -> str | None:
        """The provider's own words about a failure."""
        found = _first(answer, self.message)
        return found if isinstance(found, str) else None

    def refusal(self, answer: Document, places: RulePlaces | None = None, view: Document | None = None) -> Refused:
        """The refusal in this answer; what the rule's places find wins over the error shape.

        `view`: what the rule has read, where that is an object inside the answer.
        """
        fields = {
            name: value
            for name, value in (
                ("code", _first(answer, self.code)),
                ("message", _first(answer, self.message)),
            )
            if value is not MISSING
        }
        places = places or RulePlaces()
        if not answer.readable:
            return Refused(None)
        body = (view or answer).body
        reference = places.read_reference(body) or response.reference(answer.find(self.reference))
        return Refused(reference, places.read_status(body), {**fields, **places.read_fields(body)})

    def rules(self, default: RulePlaces) -> tuple[Rule, ...]:
        """The codes as rules: one for each word, shape and place of the code."""
        places = RulePlaces(reference=self.reference).over(default)
        return tuple(
            Rule(
                says,
                FAILURES,
                (
                    Condition(shape),
                    *(Condition(earlier, exists=False) for earlier in self.code[:index]),
                    Condition(code, spellings(codes)),
                ),
                places=places,
            )
            for says, codes in self.codes.items()
            if codes
            for shape in self.shape
            for index, code in enumerate(self.code)
        )


def _first(answer: Document, places: tuple[Tokens, ...]) -> Any:
    return next((found for at in places if (found := answer.find(at)) is not MISSING), MISSING)


def by_status(answer: Document, contract: Contract, errors: ErrorShape) -> tuple[Outcome, str]:
    """The outcome of an answer that no rule matches, and why, in a few words. Never raises."""
    status = answer.status
    if not answer.complete:
        return Ambiguous(), "the response was cut short"
    if status in CONFIG:
        return NotExecuted("config"), "credentials, address or a proxy"
    if status == 429 and contract.throttles_before_execution:
        return throttled(answer, contract), "the limiter stands before execution"
    if not 400 <= status < 500 or status in NO_PROOF:
        return Ambiguous(), _why_ambiguous(answer)
    if not errors.fits(answer):
        if status not in REGISTERED:
            return Ambiguous(), "a status that no standard knows"
        return NotExecuted("config"), "not in the provider's error shape"
    if status == DECLINED:
        return errors.refusal(answer), "declined"
    if status in REQUEST:
        if contract.unlisted_4xx == "answer":
            return errors.refusal(answer), "a refused request, which the contract calls an answer"
        return NotExecuted("request"), "the provider does not take this request"
    return Ambiguous(), _why_ambiguous(answer)


def throttled(answer: Document, contract: Contract) -> NotExecuted:
    return NotExecuted("throttled", retry_after(answer.headers, contract.retry_after_cap))


def retry_after(headers: Mapping[str, str], cap: float, now: float | None = None) -> float | None:
    """Seconds that `Retry-After` asks for (RFC 9110 10.2.3), at most `cap`; None without one or for garbage.

    A date is compared with the answer's own `Date`, so that two clocks need not agree, else with `now` (POSIX
    seconds). A date in the past is 0. Header names in lower case.
    """
    text = headers.get("retry-after", "").strip()
    if SECONDS.fullmatch(text):
        # A wait of more than nine digits is the cap, and int() has a limit of its own.
        return min(float(text), cap) if len(text) <= 9 else cap
    until = _date(text)
    if until is None:
        return None
    since = _date(headers.get("date", "").strip())
    if since is None:
        since = time.time() if now is None else now
    return min(max(until - since, 0.0), cap)


def _date(text: str) -> float | None:
    if not HTTP_DATE.fullmatch(text):
        return None
    # asctime has no zone and means UTC all the same.
    zoned = text if text.endswith("GMT") else f"{text} GMT"
    try:
        return parsedate_to_datetime(zoned).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _why_ambiguous(answer: Document) -> str:
    if 200 <= answer.status < 300:
        return "no rule matches the answer" if answer.readable else "the answer is not readable"
    if 300 <= answer.status < 400:
        return "a redirect, which is never followed"
    return "the status proves nothing"
