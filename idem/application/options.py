"""What `Idem.operation` and `Idem.provider` take beside functions: the settings of idem.toml, typed for an editor.

`docs/settings.md` says what each means and its default. The names and types stand here for tools that read types;
pydantic checks the values (`outbox/config`), and a test holds that both know the same names.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypeAlias, TypedDict

from idem.outbox.domain.contract import OnUnsettleable, Strategy, ValueAtRisk
from idem.outbox.domain.sending import AskAbout, Send

SecondsOrText: TypeAlias = float | str
"""Seconds, or a text with units: `90`, `"15m"`, `"72h"`."""
Table: TypeAlias = Mapping[str, Any]
"""A table of idem.toml as a mapping, e.g. `{"carrier": "header", "name": "Idempotency-Key"}`."""


class ClientRequest(TypedDict, total=False):
    """A client's request, outside of FastAPI. `body` is the client's: JSON as bytes or value, or other bytes.

    Defaults: tenant `default`, method `POST`, nothing for the rest.
    """

    key: Required[str | None]
    tenant: str
    body: Any
    method: str
    path: str | None
    query: str | Mapping[str, Any] | None
    traceparent: str | None


class InlineRequest(TypedDict, total=False):
    """The request of an inline call. Without a `body` of a client the fingerprint is of the params."""

    key: Required[str | None]
    tenant: str
    body: Any
    path: str | None
    query: str | Mapping[str, Any] | None


class OperationOptions(TypedDict, total=False):
    """`[operations.<name>]`, without what Python says by functions and types; `lease` and `renew_for` are inline's."""

    account: str | None
    key_ttl: SecondsOrText
    short_ttl: bool
    answer_ttl: SecondsOrText
    answer_version: int | None
    start_within: SecondsOrText | None
    give_up_after: SecondsOrText
    redrive: Literal["auto", "none"]
    max_redrives: int
    retry: Literal["operator", "client"]
    while_running: Literal["conflict", "accepted"]
    after_expiry: Literal["new", "refuse"]
    completes_when: Literal["exists", "final"] | str | None
    fingerprint_without: Sequence[str]
    key_owner: Literal["tenant", "label"]
    card_data: Literal["refuse", "allow"]
    ordering_key: str | None
    ordering_group: str | None
    on_head_refused: Literal["hold", "continue"]
    two_persons: bool
    lease: SecondsOrText
    renew_for: SecondsOrText


class ProviderOptions(TypedDict, total=False):
    """`[providers.<name>]`. `send` and `lookup` may be functions; `secret_key` is Stripe's."""

    kind: Literal["http", "stripe", "send"]
    send: Send
    secret_key: Table
    encoding: Literal["json", "form"]
    headers: Mapping[str, str]
    key: Table
    retention_max: SecondsOrText | None
    deployment_tag: Table | None
    object_types: Table | None
    lookup: AskAbout | Table
    cancel_by_key: Table | None
    settle: Sequence[Strategy]
    late_effects: bool
    dedicated_account: bool
    answers_carry: str | None
    errors: Table
    object: Table
    outcome: Sequence[Table]
    webhook: Table | None
    accounts: Mapping[str, Table]
    account_check: Table | None
    connect_timeout: SecondsOrText
    keep_alive: SecondsOrText
    deadline: SecondsOrText
    flight_limit: SecondsOrText
    pause_allowance: SecondsOrText
    schedule: Sequence[SecondsOrText]
    pending_schedule: Sequence[SecondsOrText]
    pending_limit: SecondsOrText
    traceparent: bool
    throttles_before_execution: bool
    unlisted_4xx: Literal["hold", "answer"]
    on_unsettleable: OnUnsettleable
    value_at_risk: ValueAtRisk
    start_mark: bool | None
    limits: Table
    verified: str | None
    list: Table | None
