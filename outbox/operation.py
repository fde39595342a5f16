"""An operation: a named effect, how its request and its answer are built, and how long things may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from idem.outbox.contract import ProviderRequest
from idem.outbox.outcomes import Refused, Succeeded

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told for ever: status, headers and the exact bytes of the body."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


Final: TypeAlias = Succeeded | Refused


@dataclass(frozen=True, slots=True)
class Operation:
    """A named effect.

    `validate` raises ParamsInvalid; `request` builds the provider request from validated params and raises
    Unrenderable; `answer` renders the client's answer from a final outcome and the intent's id. Durations in
    seconds: `key_ttl` from accept, `answer_ttl` from settling, `start_within` (None: `give_up_after`) from
    `wanted_at`. `retry = "client"`: a row at rest needs no operator, its client will come again. `while_running`: what
    a repeated request hears while the first is running, 409 or 202. `after_expiry = "refuse"`: the key is refused for
    ever once it expired. `fingerprint_without`: JSON pointers (RFC 6901) to members that may differ between retries.
    `card_data = "refuse"`: params that look like a card number or its security code are refused. `schema`, the JSON
    Schema of the params, and `answer_statuses` are for documents.
    """

    name: str
    provider: str
    account: str
    validate: Callable[[Any], None]
    request: Callable[[Any], ProviderRequest]
    answer: Callable[[Final, str], Answer]
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
    card_data: Literal["refuse", "allow"] = "refuse"
    schema: Mapping[str, Any] = field(default_factory=dict)
    answer_statuses: tuple[int, ...] = (201, 402)
    label: Callable[[Any], str | None] = lambda params: None

    @property
    def patience(self) -> float:
        """Seconds after `wanted_at` for which the row may still be started."""
        return self.start_within if self.start_within is not None else self.give_up_after
