"""The provider contract: what a provider promises, as data (docs/design.md section 6).

All durations are seconds. A contract is frozen, compared by value, and made by `idem.outbox.configuration` from
`idem.toml` or by Python code; `check` in `idem.outbox.providers` refuses one that cannot settle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from idem.outbox.outcomes import Look, Outcome, Proof, Seen

Carrier: TypeAlias = Literal["header", "body", "none"]
Replay: TypeAlias = Literal["stored", "current", "success_only", "none"]
OnUnsettleable: TypeAlias = Literal["operator", "assume_done", "assume_not_done"]


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How the provider key travels and what a replay under it does.

    `retention` is the floor for which the provider is sure to remember a key; `margin` is kept away from its end
    and is at least flight limit + pause allowance.
    """

    carrier: Carrier = "none"
    name: str | None = None
    replay: Replay = "none"
    retention: float = 0.0
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class LookupRule:
    """Whether the provider can be asked, and how far an answer 'nothing' can be believed.

    `horizon`: after this time an effect is sure to be visible. `agree`: how many looks must agree.
    """

    by_key: bool = False
    by_reference: bool = False
    by_id: bool = False
    horizon: float = 0.0
    agree: int = 2

    @property
    def possible(self) -> bool:
        """Whether an unknown row can be asked about (by_id needs a reference, which an unknown row may lack)."""
        return self.by_key or self.by_reference


@dataclass(frozen=True, slots=True)
class Contract:
    """What one provider promises. `events`: signed events name our key, so that one can settle an unknown row.

    `answers`: it has statuses that are called `answer`, of an object which exists and is not at its end.
    """

    provider: str
    key: KeyRule = field(default_factory=KeyRule)
    lookup: LookupRule = field(default_factory=LookupRule)
    connect_timeout: float = 5.0
    deadline: float = 20.0
    flight_limit: float = 120.0
    pause_allowance: float = 900.0
    schedule: tuple[float, ...] = (5, 30, 120, 600, 3600, 21600, 86400)
    pending_schedule: tuple[float, ...] = (60, 600, 3600, 21600, 86400)
    pending_limit: float = 864000.0
    throttles_before_execution: bool = False
    unlisted_4xx: Literal["hold", "answer"] = "hold"
    retry_after_cap: float = 21600.0
    on_unsettleable: OnUnsettleable = "operator"
    start_mark: bool = False
    events: bool = False
    answers: bool = False
    concurrency: int | None = None
    verified: str | None = None

    @property
    def replays(self) -> bool:
        """Whether a replay under the same key is an authoritative answer inside the retention."""
        return self.key.replay in ("stored", "current") and self.replay_window > 0

    @property
    def replay_window(self) -> float:
        """Seconds after the first send within which a replay may still be started; 0 where there are none.

        A floor below twice the margin is treated as `replay = none` (hazard 7).
        """
        if self.key.carrier == "none" or self.key.retention < 2 * self.key.margin:
            return 0.0
        return self.key.retention - self.key.margin


@dataclass(frozen=True, slots=True)
class Account:
    """One configured credential of a provider. `origin` is scheme, host and port; both are frozen into each row.

    `credentials` are headers that are added when sending and never stored.
    """

    name: str
    origin: str
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class FrozenRequest:
    """The bytes of a provider request as accept wrote them: the same at every attempt."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A response that was read to its end (`complete`), or as far as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """What a look-up may ask with: the provider key, and the provider's own reference where it is known."""

    provider_key: str
    reference: str | None
    awaiting: bool


class Unverified(Exception):
    """A delivery that proves nothing about its sender. `reason` is one word of ours, for a metric."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""The headers of a delivery as they came, names in lower case."""


class Scheme(Protocol):
    """How a provider signs its events. Without state; the secrets belong to the accounts."""

    def parse_secret(self, text: str) -> bytes:
        """The key in a configured secret. Raises ValueError, which never contains it."""
        ...

    def verify(self, headers: Headers, body: bytes, secrets: Sequence[bytes], now: float) -> str | None:
        """The id that the headers give the event, if this scheme has one there; one of the secrets has signed it.

        `now`: POSIX seconds of the receipt. Looks at the bytes alone, in constant time. Raises Unverified.
        """
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """How the events of a provider are verified: the scheme, and the active secrets of each account."""

    scheme: Scheme
    secrets: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Event:
    """What a verified delivery says. `id` as the body has it; `key` and `reference` may be anybody's.

    `wanted`: the contract asks for events of this type. `said` is the proof in it; `note` why it is one, or is none.
    """

    id: str | None = None
    type: str | None = None
    wanted: bool = True
    key: str | None = None
    reference: str | None = None
    said: Proof | None = None
    note: str = ""


class Provider(Protocol):
    """A provider over HTTP: its contract, its accounts and the functions that read its answers.

    All of it is pure: the sending is done by `idem.outbox.lane`.
    """

    @property
    def contract(self) -> Contract: ...

    @property
    def accounts(self) -> Mapping[str, Account]: ...

    def freeze(self, request: ProviderRequest, provider_key: str) -> FrozenRequest:
        """The bytes that will be sent: the key is in its header or body field. Raises Unrenderable."""
        ...

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        """What a response to a write says; what no rule matches is Ambiguous. Never raises."""
        ...

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        """The look-up requests to make, best first; empty if this row cannot be asked about."""
        ...

    def read_look(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[Look, Seen]:
        """What the response to a look-up says. Never raises.

        `request` is the one of `questions` that was answered; without it, an answer that several look-ups would
        read differently is CouldNotAsk.
        """
        ...

    @property
    def webhook(self) -> Webhook | None:
        """How its events are verified; None where it sends none."""
        ...

    def read_event(self, body: bytes) -> Event | None:
        """What a verified delivery says; None for a body that is no JSON. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """The provider request of an operation before it is frozen: path values already percent-encoded."""

    method: str
    path: str
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
