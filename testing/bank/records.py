"""The typed lines of the log. A line is written once and never changed; times are seconds since the epoch."""

import json
from dataclasses import dataclass, field
from typing import Any

from idem.testing.bank.errors import LogCorrupt


@dataclass(frozen=True)
class Received:
    """A request, as it came in. `complete` False: the line was cut, or the bytes were no HTTP; nothing was done.

    `nth`: how often this account has now sent this key. `fault`: what was to go wrong. `key` and `reference` are as
    sent, also where the account ignores keys. `asks`: for an effect, for the end of one (`cancel`, by its key), for an
    answer and no more (`look`), or for `nothing` that there is.
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
    """An effect: this line *is* the payment. With it goes the answer that a replay of its key will get.

    `status` is as made; from `settles_at` on it is `becomes`. `details` are the members of the request's body.
    `at` lies ahead where a cached 500 is rolled forward: until then nothing shows it. Of a Stripe-like account it
    counts an object made by a POST; its changes say what becomes of that.
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
        """Whether money moves: everything but what was declined, at once or in the end. (That it was called off later
        stands in other lines: see `Log.effects`.)"""
        return (self.becomes or self.status) not in NOT_CHARGED

    def status_at(self, moment: float) -> str:
        """The status at that moment."""
        if self.becomes is not None and self.settles_at is not None and moment >= self.settles_at:
            return self.becomes
        return self.status


@dataclass(frozen=True)
class Voided:
    """A payment was called off by its key. `payment` None: there was none; with `tombstone`, none can come any more."""

    request: int
    at: float
    account: str
    key: str
    payment: str | None
    tombstone: bool


@dataclass(frozen=True)
class Remembered:
    """The answer that a key gets again, where no line of a payment of the bank's own says it.

    `payment`: what was made, if anything; `appears`: when that is there.
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
        """What the line of a payment says of its key, which it must have."""
        assert payment.key is not None
        return cls(
            payment.request, payment.at, payment.account, payment.key, payment.fingerprint, payment.answer_status,
            payment.answer_body, payment.id, payment.at,
        )  # fmt: skip


@dataclass(frozen=True)
class Changed:
    """A change of an object of a Stripe-like account, and its event if it has a `type`. `id` is the event's.

    `at` may lie ahead: then it comes by itself (`automatic`), unless a change that `voids` is written before, of an
    object with the same `root`. `patch`: the members with their new values. `key`: what the event names.
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
    """How a request ended. `status` None: nothing was answered. `effect`: `made`, `replayed` or None.

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
    """The clock was put forward, by `shifted` seconds in all."""

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
    """Read a line back.

    Raises:
        LogCorrupt: no bank of this version wrote it.
    """
    try:
        fields = json.loads(line)
        return _CLASSES[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogCorrupt(f"line {number} of the log is unreadable: {error!r}") from error
