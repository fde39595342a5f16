"""Settings of a Stripe-like account."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from idem.testing.bank.errors import SettingsError

DAY = 86_400.0


@dataclass(frozen=True)
class StripeSettings:
    """Settings of an account with `api="stripe"`. All times are seconds of the bank's clock.

    `version`: the API version of events, and of answers to requests without `Stripe-Version`.
    `events_lag`: how much later than its change an event appears in `GET /v1/events`.
    `events_kept`: how long it stays there (30 days).
    `transit_seconds`, `payout_seconds`: when a payout is in transit, and when it has arrived or failed.
    `reference`: the members of `metadata` that the bank's log takes as the reference; the first that exists counts.
    `rolled_forward_key`: whether the events of an effect after a cached 500 name its key. Stripe does not promise it,
    so the default is the worse case: only the metadata show whose effect it is.
    `default_method`: the payment method for requests that name none; None refuses them, like Stripe.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    version: str = "2026-10-28.endive"
    events_lag: float = 0.0
    events_kept: float = 30 * DAY
    transit_seconds: float = DAY
    payout_seconds: float = 2 * DAY
    reference: tuple[str, ...] = ("reference", "idem_key")
    rolled_forward_key: bool = False
    default_method: str | None = None

    def __post_init__(self) -> None:
        for name in ("events_lag", "events_kept", "transit_seconds", "payout_seconds"):
            if getattr(self, name) < 0:
                raise SettingsError(f"stripe.{name} must be 0 or more seconds")
        if self.transit_seconds > self.payout_seconds:
            raise SettingsError("stripe.transit_seconds must not be longer than stripe.payout_seconds")
