"""Every setting of the bank with unit, default and reason; also as one JSON file, for a bank in its own process."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from idem.testing.bank.errors import SettingsError
from idem.testing.bank.faults import EVERYDAY_FAULTS, BankFault
from idem.testing.bank.shape import BankShape
from idem.testing.bank.stripe.settings import StripeSettings

_STRICT = ConfigDict(extra="forbid")


class SecondRequest(StrEnum):
    """The response to a second request with the same idempotency key."""

    STORED = "stored"
    """The first response again, also a cached 500 (e.g. Stripe v1)."""
    CURRENT = "current"
    """The current object (e.g. PayPal)."""
    SUCCESS_ONLY = "success_only"
    """The first 2xx again; after a 4xx or 5xx it executes the request again (e.g. Checkout.com)."""
    NONE = "none"
    """It ignores keys: every POST executes (e.g. a card terminal, or most mail providers)."""


class BankApi(StrEnum):
    """The kind of API of an account."""

    OWN = "own"
    """The bank's own payments API, or that of the account's `shape`."""
    STRIPE = "stripe"
    """Stripe's API: see `idem.testing.bank.stripe`."""


def _explained(error: ErrorDetails) -> str:
    place = ".".join(map(str, error["loc"])) or "settings"
    if error["type"] != "unexpected_keyword_argument":
        return f"{place}: {error['msg']}"
    known = {
        f.name for cls in (BankSettings, BankAccount, WebhookOrder, CancelByKey, StripeSettings) for f in fields(cls)
    }
    near = difflib.get_close_matches(str(error["loc"][-1]), known, 1)
    return f"{place}: there is no such setting" + (f"; did you mean {near[0]}?" if near else "")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise SettingsError(message)


def _rate(value: float | None, name: str) -> None:
    _require(value is None or 0 <= value <= 1, f"{name} must lie between 0 and 1")


_Word = TypeVar("_Word", bound=StrEnum)


def _word(words: type[_Word], name: str, value: str) -> _Word:
    try:
        return words(value)
    except ValueError:
        raise SettingsError(f"{name}: {value!r} is not one of {', '.join(words)}") from None


@dataclass(frozen=True)
class WebhookOrder:
    """How events reach the receiver.

    The bank sends `copies` of each event (2 = every event twice), `delay` seconds after it happened. With `hold` = n
    it collects n events and sends the last first; after `hold_seconds` it sends what it has.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    copies: int = 1
    delay: float = 0.0
    hold: int = 1
    hold_seconds: float = 1.0

    def __post_init__(self) -> None:
        _require(self.copies >= 0, "copies must be 0 or more")
        _require(self.delay >= 0, "delay must be 0 or more seconds")
        _require(self.hold >= 1, "hold must be 1 or more")


@dataclass(frozen=True)
class CancelByKey:
    """`POST path` with the key of a payment in the body's `member`: voids the payment if there is one; the answer is
    200 in both cases (like Square). `blocks_late_requests`: also refuse a request with this key that arrives later or
    is still running.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    path: str = "/payments/cancel"
    member: str = "key"
    blocks_late_requests: bool = False


@dataclass(frozen=True)
class BankAccount:
    """One customer of the bank; the bearer token selects it. Keys and payments of two accounts are separate.

    `retention`: seconds for which the bank remembers a key, None = forever. After it the same key executes again.
    `lookup_lag`: seconds after which a payment appears in lists and look-ups; by its id it is visible at once.
    `key_header`, `key_field`: where a request has the key; the header wins, None switches one off.
    `fault_rate`: overrides the bank's rate for this account.
    `webhook_secret`: signs events, during a rotation together with the `old_webhook_secrets`.
    `api`: the kind of API; `stripe` has the settings of a Stripe-like one, which ignores `key_field`.
    `shape`: how the bank's own API looks to this account; None: payments, with strict parameters.
    `answers_carry`: a header of every answer of the bank's own API or of the `shape`, which a proxy's page lacks; in
    Stripe's API it is always Request-Id.
    `cancel`: how to void a payment by its key, in the bank's own API or a `shape`; None: not possible.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: str = "main"
    token: str = field(default="main-token", repr=False)
    replay: SecondRequest = SecondRequest.STORED
    retention: float | None = 86_400.0
    lookup_lag: float = 0.0
    key_header: str | None = "idempotency-key"
    key_field: str | None = "idempotency_key"
    fault_rate: float | None = None
    webhook_url: str | None = None
    webhook_secret: str = field(default="whsec_aWRlbSBiYW5rIHRlc3Qgc2VjcmV0IG9mIDMyIGJ5dGVz", repr=False)
    webhook: WebhookOrder = field(default_factory=WebhookOrder)
    shape: BankShape | None = None
    api: BankApi = BankApi.OWN
    stripe: StripeSettings = field(default_factory=StripeSettings)
    answers_carry: str | None = None
    cancel: CancelByKey | None = field(default_factory=CancelByKey)
    old_webhook_secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "replay", _word(SecondRequest, "replay", self.replay))
        object.__setattr__(self, "api", _word(BankApi, "api", self.api))
        _require(
            self.api is BankApi.OWN or self.shape is None, f"account {self.name}: a shape is for the bank's own API"
        )
        _require(bool(self.name) and ":" not in self.name, "an account needs a name, without ':'")
        _require(bool(self.token), f"account {self.name}: the token is empty")
        _require(self.retention is None or self.retention >= 0, f"account {self.name}: retention is negative")
        _require(self.lookup_lag >= 0, f"account {self.name}: lookup_lag is negative")
        for secret in (self.webhook_secret, *self.old_webhook_secrets):
            _require(secret.startswith("whsec_"), f"account {self.name}: a webhook secret must begin with whsec_")
        _rate(self.fault_rate, f"account {self.name}: fault_rate")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `name:token[:replay[:retention[:lag[:api]]]]`, the form of the command line.

        Retention and lag are seconds or end in s, m, h or d; retention `forever` never ends; api is `own` or `stripe`.

        Raises:
            SettingsError: the text has another form.
        """
        parts = text.split(":")
        if not 2 <= len(parts) <= 6:
            raise SettingsError(f"account {text!r}: expected name:token[:replay[:retention[:lag[:api]]]]")
        names = ("name", "token", "replay", "retention", "lookup_lag", "api")
        given: dict[str, Any] = {"name": parts[0], "token": parts[1]}
        given |= {name: part for name, part in zip(names[2:], parts[2:], strict=False) if part}
        for name in given.keys() & {"retention", "lookup_lag"}:
            forever = (name, given[name]) == ("retention", "forever")
            given[name] = None if forever else seconds(given[name])
        return cls(**given)


@dataclass(frozen=True)
class BankSettings:
    """The whole bank.

    `log`: the file of JSON lines that has the bank's whole state, read again at the next start; None keeps it in memory
    only.
    `durable`: fsync before every answer. Without it the log still survives a SIGKILL of the bank, but not a power cut.
    `seed`, `fault_rate` (0 to 1), `faults` (name → weight; a name may have seconds: `act_then_stall:5`): which POSTs
    fail by themselves, and how. The choice is a hash of seed, account, key and how often that key was sent.
    `lookup_fault_rate`, `lookup_faults`: the same for GETs.
    `require_auth`: 401 for an unknown token; otherwise the first account serves every request without a known token.
    `pending_seconds`: how long a `pending` payment is processing.
    `stall_seconds`: how long `stall_before_acting` waits before it acts.
    `latency`: seconds that every request waits before it is executed.
    `idle_seconds`: after this time the bank closes an idle connection or one with an incomplete request.
    `script`: rules in the form of `POST /_bank/script`, from the start on; only these may run a command.
    `host`: with another than a loopback address everyone who reaches it can kill processes of this user.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    host: str = "127.0.0.1"
    port: int = 0
    log: Path | None = None
    durable: bool = True
    accounts: tuple[BankAccount, ...] = (BankAccount(),)
    require_auth: bool = False
    seed: int = 0
    fault_rate: float = 0.0
    faults: Mapping[str, float] = field(default_factory=lambda: dict(EVERYDAY_FAULTS))
    lookup_fault_rate: float = 0.0
    lookup_faults: Mapping[str, float] = field(
        default_factory=lambda: {"drop_before_acting": 1.0, "503": 1.0, "429": 1.0, "broken_body": 1.0}
    )
    pending_seconds: float = 5.0
    stall_seconds: float = 5.0
    latency: float = 0.0
    idle_seconds: float = 75.0
    max_body: int = 1_048_576
    control: bool = True
    script: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        _require(len(self.accounts) > 0, "the bank needs an account")
        for what in ("name", "token"):
            seen = [getattr(account, what) for account in self.accounts]
            _require(len(set(seen)) == len(seen), f"two accounts have the same {what}")
        _rate(self.fault_rate, "fault_rate")
        _rate(self.lookup_fault_rate, "lookup_fault_rate")
        for faults in (self.faults, self.lookup_faults):
            for name, weight in faults.items():
                BankFault.parse(name)
                _require(weight >= 0 and math.isfinite(weight), f"the weight of {name} must be 0 or more")
        for name in ("pending_seconds", "stall_seconds", "latency", "idle_seconds"):
            _require(getattr(self, name) >= 0, f"{name} must be 0 or more")

    @classmethod
    def from_json(cls, text: str | bytes) -> "BankSettings":
        """Parse the settings from JSON.

        Raises:
            SettingsError: it is not JSON, or a setting is unknown or wrong; the message lists all of them.
        """
        try:
            return _adapter().validate_json(text)
        except ValidationError as error:
            raise SettingsError("; ".join(map(_explained, error.errors()))) from error

    def to_json(self) -> str:
        """The settings as JSON, which `from_json` reads back to an equal object. Includes the accounts' secrets."""
        return _adapter().dump_json(self, indent=2).decode()


def seconds(text: str) -> float:
    """Parse a number of seconds, or a number with a unit: `90s`, `15m`, `24h`, `7d`.

    Raises:
        SettingsError: the text has another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise SettingsError(f"{text!r} is not a duration: expected e.g. 0.5, 90s, 15m, 24h or 7d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]


def _adapter() -> TypeAdapter[BankSettings]:
    return TypeAdapter(BankSettings)
