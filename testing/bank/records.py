"""The lines of the log, typed. A line is written once and never changed; times are seconds since the epoch."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from idem.testing.bank.errors import LogCorrupt


@dataclass(frozen=True)
class Received:
    """A request, as it came in. `complete` False: the line was cut, or the bytes were no HTTP; nothing was done.

    `nth`: how often this account has now sent this key. `fault`: what was to go wrong. `key` and `reference` are as
    sent, also where the account ignores keys.
    """

    kind: ClassVar[str] = "request"

    id: int
    at: float
    account: str | None
    method: str
    path: str
    key: str | None
    reference: str | None
    body_sha256: str
    nth: int
    fault: str | None
    complete: bool = True


@dataclass(frozen=True)
class Payment:
    """An effect: this line *is* the payment. With it goes the answer that a replay of its key will get.

    `status` is as made; from `settles_at` on it is `becomes`. `details` are the members of the request's body.
    """

    kind: ClassVar[str] = "payment"

    id: str
    at: float
    request: int
    account: str
    key: str | None
    reference: str | None
    amount: int
    currency: str
    status: str
    becomes: str | None
    settles_at: float | None
    fingerprint: str
    answer_status: int
    answer_body: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def charged(self) -> bool:
        """Whether money moves: everything but what was declined, at once or in the end."""
        return (self.becomes or self.status) != "declined"

    def status_at(self, moment: float) -> str:
        """The status at that moment."""
        if self.becomes is not None and self.settles_at is not None and moment >= self.settles_at:
            return self.becomes
        return self.status


@dataclass(frozen=True)
class Answered:
    """How a request ended. `status` None: nothing was answered. `effect`: `made`, `replayed` or None.

    Written before the answer leaves, so it says what the bank was about to send, not what arrived.
    """

    kind: ClassVar[str] = "answer"

    request: int
    at: float
    status: int | None
    effect: str | None
    payment: str | None


@dataclass(frozen=True)
class WebhookSent:
    """One delivery of an event; `status` None: the receiver could not be reached."""

    kind: ClassVar[str] = "webhook"

    id: str
    at: float
    account: str
    type: str
    payment: str
    status: int | None


@dataclass(frozen=True)
class ClockShifted:
    """The clock was put forward, by `shifted` seconds in all."""

    kind: ClassVar[str] = "clock"

    at: float
    shifted: float


Record = Received | Payment | Answered | WebhookSent | ClockShifted
_CLASSES: dict[str, type[Record]] = {cls.kind: cls for cls in (Received, Payment, Answered, WebhookSent, ClockShifted)}


def to_line(record: Record) -> bytes:
    """The record as one line of JSON, with its newline."""
    return json.dumps({"kind": record.kind, **vars(record)}, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes, number: int) -> Record:
    """Read a line back.

    Raises:
        LogCorrupt: no bank of this version wrote it.
    """
    try:
        fields = json.loads(line)
        return _CLASSES[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogCorrupt(f"line {number} of the log is unreadable: {error!r}") from error
