"""The declarative HTTP provider: requests with the key in them, outcomes by rules, look-ups by templates. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from idem.outbox.domain.contract import Account, Contract, FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import Ambiguous, CouldNotAsk, LookupOutcome, NotExecuted, Outcome, Seen
from idem.outbox.domain.provider import Page, Question
from idem.outbox.domain.webhook import Event, Webhook
from idem.outbox.providers import events, outcome_rules, request_parts
from idem.outbox.providers import response as document
from idem.outbox.providers.account_rule import AccountCheck
from idem.outbox.providers.body_encoding import MEDIA_TYPES, Encoding, encoded
from idem.outbox.providers.cancels import Cancel
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.errors import ErrorShape, by_status, throttled
from idem.outbox.providers.event_lookups import EventLookup
from idem.outbox.providers.listing import Listing
from idem.outbox.providers.lookups import Lookup
from idem.outbox.providers.object_types import ObjectTypes
from idem.outbox.providers.outcome_rules import Rule, RulePlaces, Says
from idem.outbox.providers.pages import BrokenList, begins
from idem.outbox.providers.reading import Facts, Way, agree, seen
from idem.outbox.providers.response import Document
from idem.outbox.providers.template import check_path, fill
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_pointer import MISSING, Tokens

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True)
class HttpProvider:
    """A provider over HTTP, made of its contract (`Provider` in `idem.outbox.domain.provider`).

    `outcome` are the ordered rules, `errors` the provider's own error shape, `lookups` the ways to ask, best first.
    `webhook` verifies its events, `events` says where things stand in them. `encoding` is that of every body, `tag`
    what every body carries of this deployment. `event_lookup` asks its list of events, after all others; `ledger` is
    its list of everything, `cancels` its way to void what was sent under a key. `headers` (names in lower case) are
    those of every request, unless an operation says another value. `object` says where values are in an object,
    `object_paths` where the object may stand in an answer to a write, if that is not the object itself. `object_types`
    tell the object of a call from others that it made beside it. `account_question` asks whose the credentials are.
    """

    contract: Contract
    accounts: Mapping[str, Account]
    outcome: tuple[Rule, ...] = ()
    errors: ErrorShape = field(default_factory=ErrorShape)
    lookups: tuple[Lookup, ...] = ()
    webhook: Webhook | None = None
    events: WebhookSettings = field(default_factory=WebhookSettings)
    encoding: Encoding = "json"
    tag: DeploymentTag | None = None
    event_lookup: EventLookup | None = None
    ledger: Listing | None = None
    cancels: Cancel | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    object: RulePlaces = field(default_factory=RulePlaces)
    object_paths: tuple[Tokens, ...] = ()
    object_types: ObjectTypes | None = None
    account_question: AccountCheck | None = None

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        """The bytes that will be sent: compact UTF-8 JSON or a form, the key in its header or body field, the tag in
        every body (a DELETE without one gets none).

        Raises Unrenderable: a method that writes nothing, a path or header that cannot be sent, a credential among
        the headers, a value that the encoding does not have, a body or header that has the place of the key or of the
        tag already.
        """
        method = request.method.upper()
        if method not in WRITES:
            raise Unrenderable(f"the method {request.method} causes no effect: use one of {', '.join(sorted(WRITES))}")
        check_path(request.path)
        headers = request_parts.headers(request.headers, self.contract.key, provider_key)
        content = request_parts.body(fill(request.json, provider_key), self.contract.key, provider_key)
        # RFC 9110 9.3.5: a body of a DELETE has no meaning, and some refuse the request for it.
        tagged = self.tag is not None and self.tag.belongs(request.path)
        if self.tag is not None and tagged and (content is not None or method != "DELETE"):
            content = self.tag.written(content, self.contract.deployment or "", provider_key)
        body = b"" if content is None else encoded(content, self.encoding)
        if content is not None:
            headers.setdefault("content-type", MEDIA_TYPES[self.encoding])
        headers = {"accept": "application/json", **self.headers, **headers}
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

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        """What the response to a look-up says. `request` is the one of `questions` that was answered, or a page of it.

        Without it an answer that the look-ups would read differently is CouldNotAsk. Never raises.
        """
        try:
            answer = document.read(response)
            asked = [(way, made) for way, made in self._questions(question) if request is None or begins(request, made)]
            lookup, note = agree([self._reading(way, answer, question, request or made) for way, made in asked])
            copies = max((way.copies(answer, question, self._facts) for way, _ in asked), default=0)
            return lookup, replace(seen(answer, self.errors, note), copies=copies)
        except Exception as error:
            return CouldNotAsk(), _unread(response, error)

    def next_page(self, response: Response, question: Question, request: FrozenRequest) -> FrozenRequest | None:
        """The next page of a look-up's list, if one is needed. Never raises."""
        try:
            answer = document.read(response)
            ways = [way for way, made in self._questions(question) if begins(request, made)]
            pages = [way.following(answer, question, request, self._facts) for way in ways]
            return next((page for page in pages if page is not None), None)
        except Exception:
            # `read_lookup` has met the same, and called it a question that failed.
            return None

    def cancel(self, question: Question) -> FrozenRequest | None:
        """The request that cancels by key, if the contract has one. Never raises."""
        try:
            made = None if self.cancels is None else self.cancels.request(question, self.encoding)
            return None if made is None else self._with_headers(made, question)
        except Unrenderable:
            return None

    def read_cancel(self, response: Response, question: Question) -> tuple[LookupOutcome, Seen]:
        """What the answer to a cancel says. Never raises."""
        try:
            answer = document.read(response)
            if self.cancels is None:
                return CouldNotAsk(), seen(answer, self.errors, "this provider cannot cancel by key")
            lookup, note = self.cancels.read(answer, question, self._facts)
            return lookup, seen(answer, self.errors, note)
        except Exception as error:
            return CouldNotAsk(), _unread(response, error)

    def listing(self, since: float, until: float) -> FrozenRequest | None:
        """The first page of the provider's own list, if the contract has one. Raises Unrenderable."""
        return None if self.ledger is None else self._with_headers(self.ledger.request(since, until))

    def read_listing(self, response: Response, request: FrozenRequest) -> Page | None:
        """The objects of a page of it. Never raises."""
        try:
            return None if self.ledger is None else self.ledger.read(document.read(response), request, self._facts)
        except Exception:
            return None

    def account_check(self) -> FrozenRequest | None:
        """The question whose account the credentials are, if the contract has one."""
        return None if self.account_question is None else self._with_headers(self.account_question.request())

    def read_account(self, response: Response) -> str | None:
        """What names the account in its answer. Never raises."""
        return None if self.account_question is None else self.account_question.read(response)

    def read_events(self, body: bytes) -> tuple[Event, ...] | None:
        """What a verified delivery says, by the rules of the answers; None if the body is not JSON. Never raises."""
        return events.read(self.events, body, self._facts)

    def kind(self, path: str) -> str | None:
        """The type of object that a call to this path is about; None: every type counts."""
        return None if self.object_types is None else self.object_types.of_path(path)

    def _outcome(self, answer: Document) -> tuple[Outcome, str]:
        if not answer.complete:
            return Ambiguous(), "the response was cut short"
        views = (*self._objects(answer), answer)
        for rule in self.outcome:
            view = next((each for each in views if rule.matches(each)), None)
            if view is not None and self._may_conclude(rule, answer):
                return self._concluded(rule, view, answer)
        return by_status(answer, self.contract, self.errors)

    def _may_conclude(self, rule: Rule, answer: Document) -> bool:
        if rule.says in (Says.ABSENT, Says.LATER_FACT):
            return False
        if rule.says is Says.AMBIGUOUS_CACHED:
            # What a proxy says is stored nowhere, and a replay may still settle it.
            return rule.recognises or rule.demands_header or self.errors.fits(answer)
        if rule.says not in outcome_rules.PROOFS:
            return True
        # A proxy's page must not look like the provider: no proof out of a body that is not JSON; and outside 2xx
        # the body must show something that the rule demands, or for a refusal the error shape.
        shown = rule.recognises or (rule.says is Says.REFUSED and self.errors.fits(answer))
        return (answer.readable or answer.blank) and (answer.status in outcome_rules.SUCCESS or shown)

    def _objects(self, answer: Document) -> list[Document]:
        """The object in its envelope; rules read it first, and what is beside it (errors) after it."""
        found = (answer.find(at) for at in self.object_paths)
        return [replace(answer, body=thing) for thing in found if thing is not MISSING][:1]

    def _concluded(self, rule: Rule, view: Document, answer: Document) -> tuple[Outcome, str]:
        note = f"a rule says {rule.says}"
        match rule.says:
            case Says.REFUSED:
                return self.errors.refusal(answer, rule.places, view), note
            case Says.NOT_EXECUTED_REQUEST:
                return NotExecuted("request"), note
            case Says.NOT_EXECUTED_CONFIG:
                return NotExecuted("config"), note
            case Says.NOT_EXECUTED_THROTTLED:
                return throttled(answer, self.contract), note
            case Says.AMBIGUOUS_CACHED:
                return Ambiguous(cached=True), note
            case Says.AMBIGUOUS | Says.ABSENT | Says.LATER_FACT:
                return Ambiguous(), note
            case Says.FINAL | Says.ANSWER | Says.PENDING:
                proof = outcome_rules.proof(rule, view.body)
                if proof is None:
                    return Ambiguous(), "the answer lacks the reference that the contract promises"
                return proof, note

    @cached_property
    def _facts(self) -> Facts:
        return Facts(
            outcome=self.outcome,
            errors=self.errors,
            longest_wait=self.contract.retry_after_cap,
            object=self.object,
            object_types=self.object_types,
            tag=self.tag,
            deployment=self.contract.deployment or "",
            origins=frozenset(account.origin for account in self.accounts.values()),
        )

    def _questions(self, question: Question) -> list[tuple[Way, FrozenRequest]]:
        ways: tuple[Way | None, ...] = (*self.lookups, self.event_lookup)
        made: list[tuple[Way, FrozenRequest]] = []
        for way in ways:
            try:
                request = way.request(question) if way is not None and way.concerns(question) else None
            except Unrenderable:  # a reference that fits into no path
                continue
            if way is not None and request is not None:
                made.append((way, self._with_headers(request, question)))
        return made

    def _with_headers(self, request: FrozenRequest, question: Question | None = None) -> FrozenRequest:
        # What was said then, perhaps by the operation alone, may say whose the object is: it is said again.
        then = (
            {}
            if question is None
            else request_parts.question_headers(question.headers, self.contract.key, question.keys)
        )
        return replace(request, headers={**request.headers, **self.headers, **then})

    def _reading(
        self, way: Way, answer: Document, question: Question, request: FrozenRequest
    ) -> tuple[LookupOutcome, str]:
        lookup, note = way.read(answer, question, self._facts)
        if isinstance(lookup, CouldNotAsk):
            return lookup, note
        try:
            way.following(answer, question, request, self._facts)
        except BrokenList as error:
            return CouldNotAsk(), str(error)
        return lookup, note


def _unread(response: Response, error: Exception) -> Seen:
    return Seen(response.status, error=type(error).__name__, note="the answer could not be read", started=True)
