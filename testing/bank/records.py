"""The typed lines of the log. A line is written once and never changed; times are seconds since the epoch."""

import json
from dataclasses import dataclass, field
from typing import Any

from idem.testing.bank.errors import LogCorrupt


@dataclass(frozen=True)
class Received:
    """A request as it arrived. `complete` False: the connection was cut, or the bytes were not HTTP; nothing was done.

    `nth`: how often this account has now sent this key. `fault`: the planned fault. `key` and `reference` are as sent,
    also if the account ignores keys. `asks`: for an effect, for a void by key (`cancel`), only for an answer
    (`lookup`), or for `nothing`: the API has no such path.
    """

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
    asks: str = "effect"


# The statuses in which no money moves: the bank's own, and those of a Stripe-like account.
NOT_CHARGED = frozenset({"declined", "failed", "canceled", "requires_payment_method", "requires_confirmation"})


@dataclass(frozen=True)
class Payment:
    """An effect: this line *is* the payment. It includes the answer that a replay of its key gets.

    `status` is the first status; from `settles_at` on the status is `becomes`. `details` are the members of the
    request's body. `at` is in the future after a `500_rolled_forward`: until then nothing shows the payment. In a
    Stripe-like account it is an object made by a POST; later changes are `Changed` lines.
    """

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
        """Whether money moves: true unless the payment was declined, at once or later. (Other lines say whether it was
        voided later: see `Log.effects`.)"""
        return (self.becomes or self.status) not in NOT_CHARGED

    def status_at(self, moment: float) -> str:
        """The status at that moment."""
        if self.becomes is not None and self.settles_at is not None and moment >= self.settles_at:
            return self.becomes
        return self.status


@dataclass(frozen=True)
class Voided:
    """A cancel by key. `payment` None: there was none. `blocks_late_requests`: none can come later."""

    request: int
    at: float
    account: str
    key: str
    payment: str | None
    blocks_late_requests: bool


@dataclass(frozen=True)
class Remembered:
    """The answer that a key gets again, if no line of a bank's own payment has it.

    `payment`: the id of what was made, if anything; `appears`: when it becomes visible.
    """

    request: int
    at: float
    account: str
    key: str
    fingerprint: str
    status: int
    body: str
    payment: str | None
    appears: float

    @classmethod
    def of(cls, payment: "Payment") -> "Remembered":
        """The answer that a payment's line has for its key, which must exist."""
        assert payment.key is not None
        return cls(
            payment.request, payment.at, payment.account, payment.key, payment.fingerprint, payment.answer_status,
            payment.answer_body, payment.id, payment.at,
        )  # fmt: skip


@dataclass(frozen=True)
class Changed:
    """A change of an object of a Stripe-like account, and its event if it has a `type`. `id` is the event's.

    `at` may be in the future: then the change happens by itself (`automatic`), unless a change with `voids` of an
    object with the same `root` is written before. `patch`: the members with their new values. `key`: the key that the
    event names.
    """

    id: str
    at: float
    request: int
    account: str
    key: str | None
    type: str | None
    object: str
    patch: dict[str, Any]
    root: str
    voids: bool
    automatic: bool


@dataclass(frozen=True)
class EndedRequest:
    """How a request ended. `status` None: no answer. `effect`: `made`, `replayed`, `canceled` or None.

    Written before the answer leaves, so it says what the bank was about to send, not what arrived.
    """

    request: int
    at: float
    status: int | None
    effect: str | None
    payment: str | None


@dataclass(frozen=True)
class WebhookSent:
    """One delivery of an event; `status` None: the receiver could not be reached."""

    id: str
    at: float
    account: str
    type: str
    payment: str
    status: int | None


@dataclass(frozen=True)
class ClockShifted:
    """The clock was advanced; `shifted` is the sum in seconds."""

    at: float
    shifted: float


Record = Received | Payment | Voided | Remembered | Changed | EndedRequest | WebhookSent | ClockShifted
_CLASSES: dict[str, type[Record]] = {
    "request": Received,
    "payment": Payment,
    "void": Voided,
    "key": Remembered,
    "change": Changed,
    "answer": EndedRequest,
    "webhook": WebhookSent,
    "clock": ClockShifted,
}
_KINDS = {cls: kind for kind, cls in _CLASSES.items()}


def to_line(record: Record) -> bytes:
    """The record as one line of JSON, with its newline."""
    return json.dumps({"kind": _KINDS[type(record)], **vars(record)}, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes, number: int) -> Record:
    """Parse a line.

    Raises:
        LogCorrupt: no bank of this version wrote it.
    """
    try:
        fields = json.loads(line)
        return _CLASSES[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogCorrupt(f"line {number} of the log is unreadable: {error!r}") from error
