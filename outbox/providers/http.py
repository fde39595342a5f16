"""The declarative HTTP provider: requests with the key in them, outcomes by rules, look-ups by templates. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from idem.outbox.contract import Account, Contract, Event, FrozenRequest, ProviderRequest, Question, Response, Webhook
from idem.outbox.errors import Unrenderable
from idem.outbox.outcomes import Ambiguous, CouldNotAsk, Look, NotExecuted, Outcome, Seen
from idem.outbox.providers import document, rules
from idem.outbox.providers.defaults import ErrorShape, by_status, throttled
from idem.outbox.providers.document import Document
from idem.outbox.providers.events import EventReader
from idem.outbox.providers.looks import Lookup, agree, seen
from idem.outbox.providers.rules import Rule, Says
from idem.outbox.providers.template import check_header, check_path, fill

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

NOT_OURS_TO_SET: Final = frozenset(
    {
        "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive",
        "proxy-connection", "accept-encoding",
    }
)  # fmt: skip
"""Headers of the connection: a value of ours would break the framing, ask for a 417, or be refused when sending, where
it would count as a mistake of the configuration and stop the lane for everybody."""

CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
"""Resolved when sending and never frozen."""


@dataclass(frozen=True)
class HttpProvider:
    """A provider over HTTP, made of its contract (`Provider` in `idem.outbox.contract`).

    `outcome` are the ordered rules, `errors` the provider's own error shape, `lookups` the ways to ask, best first.
    `webhook` verifies its events, `events` says where things stand in them.
    """

    contract: Contract
    accounts: Mapping[str, Account]
    outcome: tuple[Rule, ...] = ()
    errors: ErrorShape = field(default_factory=ErrorShape)
    lookups: tuple[Lookup, ...] = ()
    webhook: Webhook | None = None
    events: EventReader = field(default_factory=EventReader)

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        """The bytes that will be sent: compact UTF-8 JSON, the key in its header or body field.

        Raises Unrenderable: a method that writes nothing, a path or header that cannot be sent, a credential among
        the headers, a value that JSON does not have, a body or header that has the key's place already.
        """
        method = request.method.upper()
        if method not in WRITES:
            raise Unrenderable(f"the method {request.method} causes no effect: use one of {', '.join(sorted(WRITES))}")
        check_path(request.path)
        headers = self._headers(request.headers, provider_key)
        content = self._with_key(fill(request.json, provider_key), provider_key)
        body = b"" if content is None else _encoded(content)
        if content is not None:
            headers.setdefault("content-type", "application/json")
        headers.setdefault("accept", "application/json")
        return FrozenRequest(method, fill(request.path, provider_key), headers, body)

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        """What a response to a write says. An incomplete response is Ambiguous whatever its status. Never raises."""
        try:
            answer = document.read(response)
            outcome, note = self._outcome(answer)
            return outcome, seen(answer, self.errors, note)
        except Exception as error:
            # The effect may stand: a bug of ours must not end as a proof of anything.
            return Ambiguous(), _unread(response, error)

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        """The look-ups to make, best first; empty if this row cannot be asked about. Never raises."""
        return tuple(request for _, request in self._questions(question))

    def read_look(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[Look, Seen]:
        """What the response to a look-up says. `request` is the one of `questions` that was answered.

        Without it an answer that the look-ups would read differently is CouldNotAsk. Never raises.
        """
        try:
            answer = document.read(response)
            asked = [lookup for lookup, made in self._questions(question) if request in (None, made)]
            look, note = agree(
                [lookup.read(answer, question, self.outcome, self.errors, self.contract) for lookup in asked]
            )
            copies = max((lookup.copies(answer, question) for lookup in asked), default=0)
            return look, replace(seen(answer, self.errors, note), copies=copies)
        except Exception as error:
            return CouldNotAsk(), Seen(
                response.status, type(error).__name__, "the answer could not be read", None, True
            )

    def read_event(self, body: bytes) -> Event | None:
        """What a verified event says, by the rules of the answers; None for a body that is no JSON. Never raises."""
        return self.events.read(body, self.outcome)

    def _outcome(self, answer: Document) -> tuple[Outcome, str]:
        if not answer.complete:
            return Ambiguous(), "the response was cut short"
        for rule in self.outcome:
            if rule.matches(answer) and self._may_conclude(rule, answer):
                return self._concluded(rule, answer)
        return by_status(answer, self.contract, self.errors)

    def _may_conclude(self, rule: Rule, answer: Document) -> bool:
        if rule.says is Says.ABSENT:
            return False
        if rule.says not in rules.PROOFS:
            return True
        # A proxy's page must not look like the provider: no proof out of a body that is not JSON; and outside 2xx
        # the body must show something that the rule demands, or for a refusal the error shape.
        shown = rule.recognises or (rule.says is Says.REFUSED and self.errors.fits(answer))
        return (answer.readable or answer.blank) and (answer.status in rules.SUCCESS or shown)

    def _concluded(self, rule: Rule, answer: Document) -> tuple[Outcome, str]:
        places, note = rule.places, f"a rule says {rule.says}"
        match rule.says:
            case Says.REFUSED:
                return self.errors.refusal(answer, places), note
            case Says.NOT_EXECUTED_REQUEST:
                return NotExecuted("request"), note
            case Says.NOT_EXECUTED_CONFIG:
                return NotExecuted("config"), note
            case Says.NOT_EXECUTED_THROTTLED:
                return throttled(answer, self.contract), note
            case Says.AMBIGUOUS | Says.ABSENT:
                return Ambiguous(), note
            case Says.FINAL | Says.ANSWER | Says.PENDING:
                reference = places.read_reference(answer.body)
                if places.reference is not None and reference is None:
                    return Ambiguous(), "the answer lacks the reference that the contract promises"
                status, fields = places.read_status(answer.body), places.read_fields(answer.body)
                return rules.exists(rule.says, reference, status, fields), note

    def _questions(self, question: Question) -> list[tuple[Lookup, FrozenRequest]]:
        made: list[tuple[Lookup, FrozenRequest]] = []
        for lookup in self.lookups:
            try:
                request = lookup.request(question)
            except Unrenderable:  # a reference that fits into no path
                continue
            if request is not None:
                made.append((lookup, request))
        return made

    def _headers(self, given: Mapping[str, str], provider_key: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, value in given.items():
            lower = name.lower()
            if not HEADER_NAME.fullmatch(name) or lower in NOT_OURS_TO_SET or lower in headers:
                raise Unrenderable(f"the header {name!r} cannot be set, or is there twice")
            if lower in CREDENTIALS:
                raise Unrenderable(f"the header {name!r} is a credential: it belongs to the account, and is not frozen")
            check_header(name, value)
            headers[lower] = fill(value, provider_key)
        rule = self.contract.key
        if rule.carrier == "header" and rule.name is not None:
            if rule.name.lower() in headers:
                raise Unrenderable(f"the header {rule.name!r} carries the provider key and is set by idem alone")
            headers[rule.name.lower()] = provider_key
        return headers

    def _with_key(self, content: Any, provider_key: str) -> Any:
        rule = self.contract.key
        if rule.carrier != "body" or rule.name is None:
            return content
        if not isinstance(content, dict):
            raise Unrenderable(f"the provider key goes into the member {rule.name!r}, but the body is no object")
        if content.get(rule.name, provider_key) != provider_key:
            raise Unrenderable(f"the member {rule.name!r} carries the provider key and is set by idem alone")
        return {**content, rule.name: provider_key}


def _unread(response: Response, error: Exception) -> Seen:
    return Seen(response.status, error=type(error).__name__, note="the answer could not be read", started=True)


def _encoded(content: Any) -> bytes:
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise Unrenderable(f"the body of the provider request is no JSON: {error}") from None
