"""The provider contract: what a provider promises, as data (docs/design.md section 6).

All durations are seconds. A contract is frozen, compared by value, and made by `idem.outbox.config` from
`idem.toml` or by Python code; `idem.outbox.providers.contract_checks.check` refuses one that
cannot settle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, TypeAlias

from idem.outbox.domain.limits import Limits

LOCAL: Final = "local"
"""The provider of operations that call none. Reserved: no provider of a configuration may have this name."""

Carrier: TypeAlias = Literal["header", "body", "argument", "none"]
"""`argument`: the function that sends is given it (`idem.outbox.domain.sending`)."""
ReplayRule: TypeAlias = Literal["stored", "current", "success_only", "none"]
OnUnsettleable: TypeAlias = Literal["operator", "assume_done", "assume_not_done"]
ValueAtRisk: TypeAlias = Literal["some", "none"]
Strategy: TypeAlias = Literal["replay", "lookup", "cancel_by_key"]
"""A way to settle an unknown row. A look-up is by key, by reference, by id or in the provider's list of events."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How the provider key travels and what a replay under it does.

    `retention` is the floor for which the provider is sure to remember a key; `margin` is kept away from its end
    and is at least flight limit + pause allowance.
    """

    carrier: Carrier = "none"
    name: str | None = None
    replay: ReplayRule = "none"
    retention: float = 0.0
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class LookupRule:
    """Whether the provider can be asked, and how far an answer 'nothing' can be believed.

    `by_events`: its own list of events names our key. `horizon`: after this time an effect is sure to be visible.
    `agree`: how many look-ups must agree.
    """

    by_key: bool = False
    by_reference: bool = False
    by_id: bool = False
    by_events: bool = False
    horizon: float = 0.0
    agree: int = 2

    @property
    def possible(self) -> bool:
        """Whether an unknown row can be asked about (by_id needs a reference, which an unknown row may lack)."""
        return self.by_key or self.by_reference or self.by_events


@dataclass(frozen=True, slots=True)
class CancelRule:
    """The provider can be asked to void everything that was sent under a key. A key that was cancelled is burned.

    `blocks_late_requests`: that also stops a request which arrives after the cancel. Where it does not, a cancel counts
    only after the quiet time.
    """

    blocks_late_requests: bool = False


@dataclass(frozen=True, slots=True)
class EventRule:
    """What the contract says about events.

    `fetch`: the object is fetched before one is believed. `redelivery`: seconds for which one may come again.
    `horizon`: seconds after which one that is about no call of ours is a dead letter; None: it never is (the account
    serves others too).
    """

    fetch: bool = False
    redelivery: float = 259200.0
    horizon: float | None = 86400.0


@dataclass(frozen=True, slots=True)
class Contract:
    """What one provider promises. `events`: signed events name our key, so that one can settle an unknown row.

    `keep_alive`: how long a connection may wait for its next call; 0: each call has a connection of its own.
    `answers`: it has statuses that are called `answer`, of an object which exists and is not at its end. `order`: the
    ways to settle, best first; empty: what follows from `replay`. `late_effects`: after a 5xx of its own it may still
    carry the request out, so that an absence never settles alone. `listed`: all objects of a time can be listed.
    `dedicated_account`: only this deployment uses the account, so that all that is there is ours.
    `retention_max`: the longest time for which a key is remembered, where it is known. `deployment`: the name that tags
    every request as this installation's, None: there is no tag. `value_at_risk`: what a wrong decision costs; only
    where it is `none` may `on_unsettleable` be a standing order to decide without proof. `answers_carry`: the header of
    every answer that the provider itself gives; an answer without it comes from something in between, and proves
    nothing.
    """

    provider: str
    key: KeyRule = field(default_factory=KeyRule)
    lookup: LookupRule = field(default_factory=LookupRule)
    connect_timeout: float = 5.0
    keep_alive: float = 1.5
    deadline: float = 20.0
    flight_limit: float = 120.0
    pause_allowance: float = 900.0
    schedule: tuple[float, ...] = (5, 30, 120, 600, 3600, 21600, 86400)
    pending_schedule: tuple[float, ...] = (60, 600, 3600, 21600, 86400)
    pending_limit: float = 864000.0
    throttles_before_execution: bool = False
    traceparent: bool = True
    unlisted_4xx: Literal["hold", "answer"] = "hold"
    retry_after_cap: float = 21600.0
    on_unsettleable: OnUnsettleable = "operator"
    value_at_risk: ValueAtRisk = "some"
    start_mark: bool = False
    events_settle: bool = False
    answers: bool = False
    strategies: tuple[Strategy, ...] = ()
    cancel: CancelRule | None = None
    late_effects: bool = False
    listed: bool = False
    dedicated_account: bool = False
    retention_max: float | None = None
    deployment: str | None = None
    event_rule: EventRule = EventRule()
    limits: Limits = field(default_factory=Limits)
    verified: str | None = None
    answers_carry: str | None = None

    def own(self, response: Response, *, asked: bool = False) -> Response:
        """The response as it counts: without the header that the provider's own answers carry it is not complete, nor
        where a question (`asked`) was answered by what a cache had kept."""
        if asked and (age := _kept_for(response)) is not None:
            return replace(response, complete=False, kept_for=age)
        name = self.answers_carry
        if name is None or any(each.lower() == name.lower() for each in response.headers):
            return response
        return replace(response, complete=False, lacks=name)

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

    @property
    def memory(self) -> float:
        """Seconds after the first send within which a second one under the same key is harmless, because the provider
        recognises it; 0: it recognises none."""
        return self.replay_window if self.replays else 0.0


class Signer(Protocol):
    """Credentials that are computed from the request, when it is sent."""

    def headers(self, request: FrozenRequest, origin: str, now: float) -> Mapping[str, str]:
        """The headers to add; `now`: POSIX seconds. Raises nothing for a request that could be frozen."""
        ...


@dataclass(frozen=True, slots=True)
class Account:
    """One configured credential of a provider. `origin` is scheme, host and port; both are frozen into each row.

    `credentials` are headers that are added when sending and never stored; `signer` makes more of them then.
    `authorities`: file of the PEM certificates whose holders may sign the provider's; None: the usual ones.
    """

    name: str
    origin: str
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    signer: Signer | None = field(default=None, repr=False)
    authorities: str | None = None


@dataclass(frozen=True, slots=True)
class FrozenRequest:
    """The bytes of a provider request as accept wrote them: the same at every attempt."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A response that was read to its end (`complete`), or as far as it came.

    `lacks`: the header without which it is not the provider's own answer; `kept_for`: seconds since which a cache has
    it (`Contract.own`). Such a response is never complete, because all that is read proves as little as what was cut
    short.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True
    lacks: str | None = None
    kept_for: int | None = None

    @property
    def reached(self) -> bool:
        """Whether it shows that the provider answers."""
        return self.status < 500 and self.lacks is None and self.kept_for is None


def _kept_for(response: Response) -> int | None:
    """Seconds for which a cache has kept the response (RFC 9111, 5.1); None where it comes from no cache."""
    said = next((value for name, value in response.headers.items() if name.lower() == "age"), "").strip()
    # More digits than any age has would be a number all the same, and what is not a number says nothing.
    return int(said[:9]) or None if said.isascii() and said.isdecimal() else None


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """The provider request of an operation before it is frozen: path values already percent-encoded."""

    method: str
    path: str
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
