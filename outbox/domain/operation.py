"""An operation: a named effect, how its request and its answer are built, and how long things may take."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.domain.outcomes import Pending, Refused, Succeeded
from idem.outbox.domain.plan import OnRefusal, StepEnd, StepKind
from idem.outbox.values.json_bytes import encoded

HOUR = 3600.0
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True, init=False)
class Answer:
    """What the client gets for ever: status, headers and the exact bytes of the body."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def __init__(self, status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        """Bytes are kept as they are; anything else is written as JSON (UTF-8), None as no body at all.

        `headers` replace the default, which is `content-type: application/json` where there is a body. Raises
        ValueError and TypeError for what JSON does not have, and for a status that is not a whole number.
        """
        if not isinstance(status, int) or isinstance(status, bool):
            raise TypeError(f"the status of an Answer is a whole number, e.g. 201, not {status!r}")
        kept = body if isinstance(body, bytes) else b"" if body is None else encoded(body)
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "body", kept)
        object.__setattr__(
            self, "headers", ({"content-type": JSON_TYPE} if body is not None else {}) if headers is None else headers
        )


HEADERS_LIMIT = 8192
BODY_LIMIT = 8 * 2**20
"""Bytes that a stored answer may have."""
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name of HTTP (RFC 9110, 5.1)."""
WITHOUT_CONTENT = frozenset({204, 205, 304})
"""Statuses whose answers have no body (RFC 9110)."""


def check_answer(answer: object) -> None:
    """Raises TypeError or ValueError for an answer that could not be sent, and so must not be stored for ever."""
    if not isinstance(answer, Answer):
        raise TypeError(f"answer() returned {type(answer).__name__}, not an Answer")
    if not (isinstance(answer.status, int) and 200 <= answer.status < 500):
        raise ValueError(f"the answer has status {answer.status}; 2xx to 4xx are stored")
    if not isinstance(answer.body, bytes) or len(answer.body) > BODY_LIMIT:
        raise ValueError(f"the body of an answer must be bytes, at most {BODY_LIMIT}")
    if answer.status in WITHOUT_CONTENT and answer.body:
        raise ValueError(f"the answer has a body, but status {answer.status} does not allow one")
    if type(answer.headers) is not dict and not isinstance(answer.headers, Mapping):
        raise TypeError(f"the headers of an answer must map str to str, not {type(answer.headers).__name__}")
    if answer.headers not in PLAIN_HEADERS:
        _check_headers(answer.headers)


PLAIN_HEADERS: Final[tuple[dict[str, str], ...]] = ({"content-type": JSON_TYPE}, {})
"""What nearly every answer has."""


def _check_headers(headers: Mapping[str, str]) -> None:
    # What cannot be sent would be no answer, for ever.
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str) and HEADER_NAME.fullmatch(name)
                and value.isascii() and value.isprintable() and value == value.strip()):  # fmt: skip
            raise ValueError(f"the answer has a header {name!r} that HTTP cannot carry")
    if sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_LIMIT:
        raise ValueError(f"the answer has headers of more than {HEADERS_LIMIT} bytes, which clients refuse")


ANSWER_VERSION = "Idempotent-Answer-Version"
"""The header of a stored answer that says of which version of its operation's answer it is."""


def versioned(answer: Answer, version: int | None) -> Answer:
    """The answer with its version among its headers, where its operation says one: so it is stored with the answer, and
    a replay keeps it, even if the operation says another by then."""
    if version is None:
        return answer
    others = {name: value for name, value in answer.headers.items() if name.lower() != ANSWER_VERSION.lower()}
    return Answer(answer.status, answer.body, {**others, ANSWER_VERSION: str(version)})


FinalOutcome: TypeAlias = Succeeded | Refused
Kind: TypeAlias = Literal["provider", "inline", "local"]
"""Who causes the effect: a worker's call to a provider, the caller's own code under a lease, or the caller's own
transaction."""


Results: TypeAlias = Mapping[str, StepEnd]
"""The ends of the steps of a flow before this one, by the names of the steps."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step of a flow.

    `request` builds the provider request from params and results and raises Unrenderable; `run`, of a local step,
    writes the user's own rows in the transaction that ends the step. `when` False: the step is skipped. `undoes`: of
    a compensation, the name of the step that it undoes. `completes`: its success completes the key.
    """

    name: str
    kind: StepKind
    request: Callable[[Any, Results], ProviderRequest] | None = None
    run: Callable[..., Any] | None = None
    when: Callable[[Any, Results], bool] | None = None
    on_refusal: OnRefusal = "stop"
    undoes: str | None = None
    completes: bool = False


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """A named effect.

    `validate` raises ParamsInvalid; `request` builds the provider request from validated params and raises
    Unrenderable; `answer` renders the client's answer from a final outcome and the intent's id. Durations in
    seconds: `key_ttl` from accept, `answer_ttl` from settling, `start_within` (None: `give_up_after`) from
    `requested_at`. `retry = "client"`: a row at rest needs no operator, its client retries. `while_running`: what
    a repeated request gets while the first is running, 409 or 202. `after_expiry = "refuse"`: the key is refused for
    ever once it expired. `fingerprint_without`: JSON pointers (RFC 6901) to members that may differ between retries.
    `card_data = "refuse"`: params that look like a card number or its security code are refused. `schema`, the JSON
    Schema of the params, and `answer_statuses` are for documents. `completes_when = "exists"`: an object that the
    provider has, or is working on, is the effect, and completes the key; `"final"`: both wait as `awaiting`, and
    `interim` renders what the client gets meanwhile. `kind`: who causes the effect. Inline only: `lease` is how long
    the caller holds the call without a renewal, which comes every third of it; for `renew_for` from its beginning it is
    renewed at the most, so that a caller that hangs does not hold it for ever. `answer_version` is sent and stored
    with each answer. `key_owner = "label"`: a key that came with a token belongs to the tokens with its label, and not
    to the tenant's other ones. `ordering_key`: a JSON pointer to the member of the params that orders the intents;
    `ordering_group` (None: the name) is shared by operations with one order. `on_head_refused = "hold"`: a refusal
    keeps those behind it waiting until an operator decides. `approve`: whether a person must approve a call with these
    params before it is sent; with `two_persons` another one than who asked. `rejected`: what the client gets where that
    person says no.

    A flow has `steps`, each as an operation with the provider, the account and the `step` of its own call: the forward
    ones in their order, then the compensations in the order in which they would run. An approval is of the whole flow,
    before its first step.

    `templated`: it is of idem.toml, and none of its functions is code of the user's, which may hang.
    """

    name: str
    provider: str
    account: str
    validate: Callable[[Any], None]
    request: Callable[[Any], ProviderRequest]
    answer: Callable[[FinalOutcome, str], Answer]
    key_ttl: float = 72 * HOUR
    answer_ttl: float = 24 * HOUR
    start_within: float | None = None
    give_up_after: float = 24 * HOUR
    redrive: Literal["auto", "none"] = "auto"
    retry: Literal["operator", "client"] = "operator"
    max_redrives: int = 5
    while_running: Literal["conflict", "accepted"] = "conflict"
    after_expiry: Literal["new", "refuse"] = "new"
    fingerprint_without: tuple[str, ...] = ()
    key_owner: Literal["tenant", "label"] = "tenant"
    card_data: Literal["refuse", "allow"] = "refuse"
    ordering_key: str | None = None
    ordering_group: str | None = None
    on_head_refused: Literal["hold", "continue"] = "hold"
    schema: Mapping[str, Any] = field(default_factory=dict)
    answer_statuses: tuple[int, ...] = (201, 402)
    answer_version: int | None = None
    label: Callable[[Any], str | None] = lambda params: None
    approve: Callable[[Any], object] | None = None
    two_persons: bool = False
    rejected: Callable[[str], Answer] | None = None
    completes_when: Literal["exists", "final"] = "final"
    interim: Callable[[Pending], Any] | None = None
    kind: Kind = "provider"
    steps: tuple["OperationSpec", ...] = ()
    step: StepSpec | None = None
    templated: bool = False
    lease: float = 60.0
    renew_for: float = 900.0

    @property
    def patience(self) -> float:
        """Seconds after `requested_at` for which the row may still be started."""
        return self.start_within if self.start_within is not None else self.give_up_after

    @property
    def call(self) -> str:
        """The name of its call, as `OutboxRow.call`."""
        return self.name if self.step is None else f"{self.name} {self.step.name}"

    @property
    def served(self) -> str | None:
        """Of a flow: where each of its steps goes, as the JSON that `idem.is_served` reads."""
        if not self.steps:
            return None
        steps = [(each.step.name, each.provider, each.account) for each in self.steps if each.step is not None]
        return json.dumps([{"name": name, "provider": to, "account": account} for name, to, account in steps])

    @property
    def calls(self) -> Iterator["OperationSpec"]:
        """Each of its calls as an operation: its steps, or itself."""
        yield from (each for each in self.steps if each.step is not None and each.step.kind == "call")
        if not self.steps:
            yield self

    def work_for(self, status: str) -> str:
        """The lane whose workers have something to do for a row of this status, as `channel.lane_of` names it; empty:
        that is not known here."""
        return f"{self.provider}/{self.account}" if status == "pending" and not self.steps else ""

    @property
    def local_steps(self) -> Iterator["OperationSpec"]:
        """The steps of a flow that call no provider, each as an operation."""
        yield from (each for each in self.steps if each.is_local_step)

    @property
    def is_local_step(self) -> bool:
        """Whether it is a step that calls no provider."""
        return self.step is not None and self.step.kind == "local"

    def at(self, step: str | None) -> "OperationSpec | None":
        """The operation of a row: the step of this name of a flow, or (None) the operation of one call. None: this
        definition has no such step."""
        if step is None:
            return None if self.steps else self
        return next((each for each in self.steps if each.step is not None and each.step.name == step), None)

    def request_of(self, params: Any, results: Results) -> ProviderRequest:
        """The request of its call: `results` are those of the steps before, of a flow. Raises Unrenderable."""
        if self.step is None:
            return self.request(params)
        assert self.step.request is not None
        return self.step.request(params, results)
