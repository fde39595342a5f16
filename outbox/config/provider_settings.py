"""`providers.<name>` in idem.toml: a provider contract (docs/design.md section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from idem.outbox.config.account_settings import AccountSettings
from idem.outbox.config.contract_settings import KeySettings, LookupSettings
from idem.outbox.config.outcome_settings import ObjectSettings, RuleSettings
from idem.outbox.domain.contract import (
    Account,
    CancelRule,
    Contract,
    EventRule,
    KeyRule,
    LookupRule,
    OnUnsettleable,
    Strategy,
    ValueAtRisk,
)
from idem.outbox.domain.limits import Limits
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.account_rule import AccountCheck
from idem.outbox.providers.body_encoding import Encoding
from idem.outbox.providers.cancels import Cancel
from idem.outbox.providers.contract_checks import completed
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.errors import ErrorShape
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.listing import Listing
from idem.outbox.providers.object_types import ObjectTypes
from idem.outbox.providers.outcome_rules import Rule, Says
from idem.outbox.providers.request_parts import CREDENTIALS, HeaderName, check_once, check_settable
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values.settings_base import Duration, Secret, Section

DEFAULT = Contract("")
"""The defaults of a contract are written once, in `idem.outbox.domain.contract`."""

OF_THE_CONTRACT: Final = (
    "answers_carry", "connect_timeout", "deadline", "dedicated_account", "flight_limit", "keep_alive",
    "late_effects", "limits", "on_unsettleable", "pause_allowance", "pending_limit", "pending_schedule",
    "retention_max", "schedule", "throttles_before_execution", "traceparent", "unlisted_4xx", "value_at_risk",
    "verified",
)  # fmt: skip
"""Settings that the contract has under the same name."""

Rules: TypeAlias = list[RuleSettings]
Signing: TypeAlias = list[tuple[str, tuple[str, ...], Secret]]


class ProviderSettings(Section):
    """A provider contract: facts about somebody else's system, each from its documentation."""

    kind: Literal["http", "stripe", "send"] = "http"
    """Whose facts stand behind this table: "http" (default: nobody's) or "stripe". What is written here wins over them;
    rules of `outcome` come before theirs. With stripe, `secret_key` says where the secret key is, for one account, or
    in the table of each; its origin is https://api.stripe.com. "send" is a function, which only Python can name:
    idem.provider("mail", send=…)."""
    encoding: Encoding = "json"
    """How bodies are written: "json" (default) or "form" (application/x-www-form-urlencoded, nested members as a[b]=c,
    lists as a[0]=c)."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of every request, look-ups too, e.g. Stripe-Version; plain text; default none. An operation may say
    another value; credentials belong to the accounts."""
    key: KeySettings = KeySettings()
    """How the provider key travels and what a replay does."""
    retention_max: Duration | None = None
    """Longest time in seconds for which the provider may remember a key; default not known. Keys and tombstones here
    must live longer."""
    deployment_tag: DeploymentTag | None = None
    """What every body carries of this deployment; default nothing."""
    object_types: ObjectTypes | None = None
    """Which of the objects that a call makes is its own; default none: every one that carries its key."""
    lookup: LookupSettings = LookupSettings()
    """How the provider is asked about a call."""
    cancel_by_key: Cancel | None = None
    """How idem voids what was sent under a key; default not possible."""
    settle: tuple[Strategy, ...] = DEFAULT.strategies
    """Ways to settle an unknown, best first, of "replay", "lookup" and "cancel_by_key"; default what follows from
    key.replay. What is left out is not used."""
    late_effects: bool = DEFAULT.late_effects
    """Whether the effect may still come after a 5xx of the provider's own, so that an absence never settles alone;
    default false."""
    dedicated_account: bool = DEFAULT.dedicated_account
    """Whether only this deployment uses the accounts, so that everything in them is ours; default false."""
    answers_carry: HeaderName | None = None
    """A header that is on every answer of the provider's own, e.g. Request-Id at Stripe; default none. An answer
    without it comes from something in between (a gateway, a firewall, an egress proxy) and proves nothing, whatever its
    status: a call becomes unknown, and a look, a cancel, the account check and the list count as questions that
    failed."""
    errors: ErrorShape = ErrorShape()
    """How the provider's own errors look."""
    object: ObjectSettings = ObjectSettings()
    """Where an object's values are."""
    outcome: Rules = Field(default_factory=list)
    """Ordered rules; the first that matches decides, else the table of outcomes."""
    webhook: WebhookSettings | None = None
    """How its events come and are read; default none: it sends none to us."""
    accounts: dict[str, AccountSettings] = Field(default_factory=dict)
    """The credentials, by name. An account's name is frozen into its rows."""
    account_check: AccountCheck | None = None
    """How the daemons ask, at their start, whose account their credentials are; default not at all."""
    connect_timeout: Duration = DEFAULT.connect_timeout
    """Seconds to establish a connection; default 5s. Nothing has been sent yet."""
    keep_alive: Duration = DEFAULT.keep_alive
    """Seconds for which a connection waits for the next call; default 1.5s. Keep it below the time after which the
    provider, or what stands in front of it, closes an idle connection (2s at the shortest of the usual servers, often
    5s, 60s or 75s): a call that meets that moment becomes unknown. 0: a new connection for each call. If an answer
    says `Keep-Alive: timeout=N`, half of N at the most. No connection is used for more than 30s. Say 0 if the provider
    may answer one request twice: a second answer that comes late could be taken for the next call's."""
    deadline: Duration = DEFAULT.deadline
    """Seconds for the whole call; default 20s. Make it longer than the provider's slow answers."""
    flight_limit: Duration = DEFAULT.flight_limit
    """Seconds for which the provider may still act upon a request that has left this process (proxies, stalled
    servers); default 2m."""
    pause_allowance: Duration = DEFAULT.pause_allowance
    """Seconds for which a process may be frozen between its last check and its first byte; default 15m, more than a
    live migration of a virtual machine takes."""
    schedule: tuple[Duration, ...] = DEFAULT.schedule
    """When the reconciler asks about an unknown, counted from when it became one; default 5s to 1d."""
    pending_schedule: tuple[Duration, ...] = DEFAULT.pending_schedule
    """The same for what the provider is still working on; default 1m to 1d."""
    pending_limit: Duration = DEFAULT.pending_limit
    """Seconds after which something pending becomes a dead letter; default 10d."""
    traceparent: bool = True
    """Send the traceparent header of the client's request (W3C Trace Context) with every call and look about it;
    default true. false for a provider that refuses headers it does not know."""
    throttles_before_execution: bool = False
    """Whether a 429 proves that the provider executed nothing; default false: RFC 6585 does not say so."""
    unlisted_4xx: Literal["hold", "answer"] = "hold"
    """What a refused request that no rule lists is: "hold" (default: a dead letter, it may be our bug) or "answer" (the
    client gets it)."""
    on_unsettleable: OnUnsettleable = "operator"
    """What happens where nothing can tell: "operator" (default, a dead letter), or a standing order to decide without
    proof, "assume_done" or "assume_not_done" (the call may be made again)."""
    value_at_risk: ValueAtRisk = DEFAULT.value_at_risk
    """What a wrong decision costs: "some" (default) or "none" (a mail, a text message), which alone allows a standing
    order."""
    start_mark: bool | None = None
    """Whether the worker commits the start of each call before it sends; default true where no key is carried."""
    limits: Limits = Limits()
    """What each account bears: calls at a time and calls a second."""
    verified: str | None = None
    """Date on which these facts were last checked, e.g. 2026-11-28."""
    # The last one: below it the word means this table.
    list: Listing | None = None
    """How everything that it made in a time is listed; default not possible."""

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            check_settable(name, text, CREDENTIALS)
        check_once(value)
        return value

    @model_validator(mode="after")
    def _are_set_once(self) -> ProviderSettings:
        ours = {name.lower() for name in self.headers}
        theirs = {name for account in self.accounts.values() for name in account.sets}
        theirs |= {(self.key.name or "").lower()} if self.key.carrier == "header" else set()
        for name in sorted(ours & theirs):
            raise ValueError(f"headers: {name} is set by an account or by the key too: keep one of them")
        return self

    def contract(self, name: str) -> Contract:
        """The contract, with what follows from its own words (`contract_checks.completed`)."""
        key, lookup = self.key, self.lookup
        # So that no replay can arrive after the end of the retention.
        margin = self.flight_limit + self.pause_allowance
        contract = Contract(
            provider=name,
            key=KeyRule(key.carrier, key.name, key.replay, key.retention, margin),
            lookup=LookupRule(
                **{way: getattr(lookup, way) is not None for way in ("by_key", "by_reference", "by_id", "by_events")},
                horizon=lookup.horizon,
                agree=lookup.agree,
            ),
            **{name: getattr(self, name) for name in OF_THE_CONTRACT},
            events_settle=self.events_name_key and bool(self.signing()),
            answers=Says.ANSWER in self.says(),
            event_rule=EventRule() if self.webhook is None else self.webhook.rule(),
            strategies=self.settle,
            cancel=None if self.cancel_by_key is None else CancelRule(self.cancel_by_key.blocks_late_requests),
            listed=self.list is not None,
        )
        return completed(contract, self.start_mark)

    def build(
        self,
        name: str,
        accounts: Mapping[str, Account],
        secrets: Mapping[str, tuple[bytes, ...]] = MappingProxyType({}),
        environment: str = "development",
    ) -> Provider:
        """The provider. An account that is not in `accounts` has no credentials; `secrets` are its webhook secrets.

        `environment` is the name of the installation, of which the deployment tag is made.
        """
        contract = self.contract(name)
        return HttpProvider(
            contract=contract if self.deployment_tag is None else replace(contract, deployment=environment),
            accounts={each: accounts.get(each, Account(each, said.origin)) for each, said in self.accounts.items()},
            outcome=self.rules(),
            errors=self.errors,
            lookups=self.lookup.ways(),
            webhook=None if self.webhook is None else self.webhook.build(secrets, self.addresses()),
            events=self.webhook or WebhookSettings(),
            encoding=self.encoding,
            tag=self.deployment_tag,
            event_lookup=self.lookup.by_events,
            ledger=self.list,
            cancels=self.cancel_by_key,
            headers={header.lower(): text for header, text in self.headers.items()},
            object=self.object,
            object_paths=self.object.path,
            object_types=self.object_types,
            account_question=self.account_check,
        )

    def rules(self) -> tuple[Rule, ...]:
        """Every rule in its order: the explicit ones, then codes, then statuses."""
        explicit = tuple(rule.build(self.object) for rule in self.outcome)
        return (*explicit, *self.errors.rules(self.object), *self.object.rules())

    def says(self) -> frozenset[Says]:
        """What the rules can conclude."""
        return frozenset(rule.says for rule in self.rules())

    def signing(self) -> Signing:
        """Every webhook secret: whose it is, where below the provider it stands, and where its value is."""
        shared = [] if self.webhook is None or len(self.accounts) != 1 else self.webhook.secrets
        found: Signing = []
        for account, settings in self.accounts.items():
            own = [] if settings.webhook is None else settings.webhook.secrets
            for at, secrets in (((), shared), (("accounts", account), own)):
                below = (*at, "webhook", "secrets")
                found += [(account, (*below, str(number)), secret) for number, secret in enumerate(secrets)]
        return found

    @property
    def events_name_key(self) -> bool:
        """Whether an event says which call of ours it is about: in a place of its own, or beside our tag."""
        tagged = self.deployment_tag is not None and self.deployment_tag.key_at is not None
        return self.webhook is not None and (tagged or bool(self.webhook.key))

    def addresses(self) -> dict[str, str]:
        """Where the provider sends the events of each account, where that is written."""
        webhook = self.webhook
        found = {} if webhook is None else {n: webhook.address(n, a.webhook) for n, a in self.accounts.items()}
        return {account: url for account, url in found.items() if url is not None}
