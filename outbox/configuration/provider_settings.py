"""`providers.<name>` in idem.toml: a provider contract (docs/design.md section 6), and the HTTP provider made of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from idem.outbox.configuration.look_settings import LookupSettings
from idem.outbox.configuration.outcome_settings import ErrorSettings, ObjectSettings, RuleSettings
from idem.outbox.configuration.webhook_settings import AccountWebhookSettings, WebhookSettings
from idem.outbox.contract import Account, Carrier, Contract, KeyRule, LookupRule, OnUnsettleable, Replay
from idem.outbox.providers.contracts import completed
from idem.outbox.providers.events import EventReader
from idem.outbox.providers.http import HEADER_NAME, NOT_OURS_TO_SET, HttpProvider
from idem.outbox.providers.rules import Says
from idem.outbox.section import Duration, Secret, Section

DEFAULT = Contract("")
"""The defaults of a contract are written once, in `idem.outbox.contract`."""


class AccountSettings(Section):
    """One credential of a provider; keys, looks and webhooks are scoped to it."""

    origin: str = Field(description="Scheme, host and port of the provider, as https://api.bank.example; no default.")
    authorization: Secret | None = Field(
        default=None,
        description="Where the value of the Authorization header is; default none. Resolved at start, not stored.",
    )
    headers: dict[str, Secret] = Field(
        default_factory=dict, description="Other headers with credentials, name to secret; default none."
    )
    webhook: AccountWebhookSettings | None = Field(
        default=None, description="What this account's events are signed with; default none: they are refused."
    )

    @field_validator("origin")
    @classmethod
    def _is_origin(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or not value.isascii():
            raise ValueError("an origin is scheme, host and port, as https://api.bank.example")
        if parts.username is not None or parts.password is not None:
            raise ValueError("an origin holds no credentials: use authorization")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("an origin has no path: it belongs to the paths of the operations")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port is not None else "")

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        for name in value:
            if not HEADER_NAME.fullmatch(name) or name.lower() in NOT_OURS_TO_SET:
                raise ValueError(f"{name!r} is no header that can be set")
        return value

    @property
    def is_open(self) -> bool:
        """Whether credentials would travel unencrypted over a network."""
        parts = urlsplit(self.origin)
        if parts.scheme == "https" or parts.hostname == "localhost":
            return False
        try:
            return not ipaddress.ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return True


class KeySettings(Section):
    """How the provider key travels, and what the provider promises about it."""

    carrier: Carrier = Field(
        default="none",
        description='What carries the provider key: "header", "body" or "none" (default: nothing is promised).',
    )
    name: str | None = Field(default=None, description="Name of the header or body member, as Idempotency-Key.")
    replay: Replay = Field(
        default="none",
        description='What a second send under the same key gets: "stored" (the first answer), "current" (the object as '
        'it is now), "success_only" (2xx are stored, errors are executed again) or "none" (default).',
    )
    retention: Duration = Field(
        default=0.0, description="Seconds for which the provider is sure to remember a key: its floor; default 0."
    )
    margin: Duration | None = Field(
        default=None,
        description="Seconds that a replay keeps away from the end of retention; default flight_limit + "
        "pause_allowance, so that no replay can arrive after it.",
    )


class ProviderSettings(Section):
    """A provider contract: facts about somebody else's system, each from its documentation."""

    key: KeySettings = Field(default=KeySettings(), description="How the provider key travels and what a replay does.")
    lookup: LookupSettings = Field(default=LookupSettings(), description="How the provider is asked about a call.")
    errors: ErrorSettings = Field(default=ErrorSettings(), description="How the provider's own errors look.")
    object: ObjectSettings = Field(default=ObjectSettings(), description="Where an object's values are.")
    outcome: list[RuleSettings] = Field(
        default_factory=list, description="Ordered rules; the first that matches decides, else the table of outcomes."
    )
    webhook: WebhookSettings | None = Field(
        default=None, description="How its events come and are read; default none: it sends none to us."
    )
    accounts: dict[str, AccountSettings] = Field(
        default_factory=dict, description="The credentials, by name. An account's name is frozen into its rows."
    )
    connect_timeout: Duration = Field(
        default=DEFAULT.connect_timeout,
        description="Seconds for a connection to stand; default 5s. Nothing has left yet.",
    )
    deadline: Duration = Field(
        default=DEFAULT.deadline,
        description="Seconds for the whole call; default 20s. Longer than the provider's slow answers.",
    )
    flight_limit: Duration = Field(
        default=DEFAULT.flight_limit,
        description="Seconds after leaving us for which a request may still be acted upon (proxies, stalled servers); "
        "default 2m.",
    )
    pause_allowance: Duration = Field(
        default=DEFAULT.pause_allowance,
        description="Seconds for which a process of ours may be frozen between its last check and its first byte; "
        "default 15m, more than a live migration takes.",
    )
    schedule: tuple[Duration, ...] = Field(
        default=DEFAULT.schedule, description="When an unknown is looked at, after it became one; default 5s to 1d."
    )
    pending_schedule: tuple[Duration, ...] = Field(
        default=DEFAULT.pending_schedule, description="The same for what the provider is working on; default 1m to 1d."
    )
    pending_limit: Duration = Field(
        default=DEFAULT.pending_limit, description="Seconds until something pending is a dead letter; default 10d."
    )
    throttles_before_execution: bool = Field(
        default=False,
        description="Whether a 429 proves that nothing was executed; default false: RFC 6585 does not say so.",
    )
    unlisted_4xx: Literal["hold", "answer"] = Field(
        default="hold",
        description='What a refused request that no rule lists is: "hold" (default: a dead letter, it may be our bug) '
        'or "answer" (the client hears it).',
    )
    retry_after_cap: Duration = Field(
        default=DEFAULT.retry_after_cap, description="Longest wait that Retry-After may order, in seconds; default 6h."
    )
    on_unsettleable: OnUnsettleable = Field(
        default="operator",
        description='What happens where nothing can tell: "operator" (default, a dead letter); no other yet.',
    )
    start_mark: bool | None = Field(
        default=None, description="Whether each call's start is committed first; default where no key is carried."
    )
    concurrency: int | None = Field(default=None, description="Calls at a time, of the whole fleet; default no limit.")
    verified: str | None = Field(
        default=None, description="Date at which these facts were last checked, as 2026-11-28."
    )

    @field_validator("on_unsettleable")
    @classmethod
    def _is_available(cls, value: OnUnsettleable) -> OnUnsettleable:
        # Nothing carries out a standing order yet: taken and not followed it would leave payments to nobody.
        if value != "operator":
            raise ValueError(f'"{value}" is not available yet: use "operator"')
        return value

    def contract(self, name: str) -> Contract:
        """The contract, with what follows from its own words (`contracts.completed`)."""
        key, lookup = self.key, self.lookup
        margin = key.margin if key.margin is not None else self.flight_limit + self.pause_allowance
        contract = Contract(
            provider=name,
            key=KeyRule(key.carrier, key.name, key.replay, key.retention, margin),
            lookup=LookupRule(
                by_key=lookup.by_key is not None,
                by_reference=lookup.by_reference is not None,
                by_id=lookup.by_id is not None,
                horizon=lookup.horizon,
                agree=lookup.agree,
            ),
            connect_timeout=self.connect_timeout,
            deadline=self.deadline,
            flight_limit=self.flight_limit,
            pause_allowance=self.pause_allowance,
            schedule=self.schedule,
            pending_schedule=self.pending_schedule,
            pending_limit=self.pending_limit,
            throttles_before_execution=self.throttles_before_execution,
            unlisted_4xx=self.unlisted_4xx,
            retry_after_cap=self.retry_after_cap,
            on_unsettleable=self.on_unsettleable,
            events=self.webhook is not None and self.webhook.key is not None and bool(self.signing()),
            answers=any(rule.says is Says.ANSWER for rule in self.outcome),
            concurrency=self.concurrency,
            verified=self.verified,
        )
        return completed(contract, self.start_mark)

    def signing(self) -> list[tuple[str, tuple[str, ...], Secret]]:
        """Every webhook secret: whose it is, where below the provider it stands, and where its value is."""
        shared = [] if self.webhook is None or len(self.accounts) != 1 else self.webhook.secrets
        found: list[tuple[str, tuple[str, ...], Secret]] = [
            (account, ("webhook", "secrets", str(number)), secret)
            for account in self.accounts
            for number, secret in enumerate(shared)
        ]
        for account, settings in self.accounts.items():
            own = [] if settings.webhook is None else settings.webhook.secrets
            at = ("accounts", account, "webhook", "secrets")
            found += [(account, (*at, str(number)), secret) for number, secret in enumerate(own)]
        return found

    def build(
        self,
        name: str,
        credentials: Mapping[str, Mapping[str, str]],
        secrets: Mapping[str, tuple[bytes, ...]] = MappingProxyType({}),
    ) -> HttpProvider:
        """The provider; `credentials` are the resolved headers of each account, `secrets` its webhook secrets."""
        return HttpProvider(
            contract=self.contract(name),
            accounts={
                account: Account(account, settings.origin, credentials.get(account, {}))
                for account, settings in self.accounts.items()
            },
            outcome=tuple(rule.build(self.object) for rule in self.outcome),
            errors=self.errors.build(),
            lookups=tuple(look.build(by) for by, look in self.lookup.ways()),
            webhook=None if self.webhook is None else self.webhook.build(secrets),
            events=EventReader() if self.webhook is None else self.webhook.reader(self.object.reference),
        )
