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
    `wanted_at`. `retry = "client"`: a row at rest needs no operator, its client will come again.
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
    label: Callable[[Any], str | None] = lambda params: None

    @property
    def patience(self) -> float:
        """Seconds after `wanted_at` for which the row may still be started."""
        return self.start_within if self.start_within is not None else self.give_up_after
