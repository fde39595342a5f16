"""`idem.provider("mail", send=…)`: the contract of a provider that a function sends to. Only Python can name one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from idem.outbox.config.account_settings import AccountSettings
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.domain.contract import Account, Contract
from idem.outbox.providers.contract_checks import completed
from idem.outbox.providers.outcome_rules import Says
from idem.outbox.providers.send import SendProvider

MAIN: Final = "main"
HTTP_ONLY: Final = (
    "account_check", "answers_carry", "cancel_by_key", "connect_timeout", "dedicated_account", "deployment_tag",
    "encoding", "errors", "headers", "keep_alive", "list", "object", "object_types", "outcome",
    "throttles_before_execution", "unlisted_4xx", "webhook",
)  # fmt: skip
"""What a function says by what it returns, or does itself."""


class SendAccountSettings(AccountSettings):
    """A name that the function is given; what it logs in with is its own affair."""

    @field_validator("origin")
    @classmethod
    def _is_origin(cls, value: str) -> str:
        return value


class SendSettings(ProviderSettings):
    """A contract without HTTP. `ask_about` is the function that `lookup` or `lookup.by_key` names."""

    send: Callable[..., Any] = Field(exclude=True, repr=False)
    ask_about: Callable[..., Any] | None = Field(default=None, exclude=True, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _is_about_a_function(cls, table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        if not callable(table.get("send")):
            raise ValueError(
                'a function sends for it, which only Python can name: write idem.provider("…", send=…) there instead '
                "of this table, and start the daemons with --app"
            )
        for name in HTTP_ONLY:
            if name in table:
                raise ValueError(f"{name} belongs to HTTP: here the function itself says what became of the call")
        changed = {**table, "accounts": _accounts(table.get("accounts", {MAIN: {}}))}
        lookup = table.get("lookup")
        if callable(lookup):
            changed |= {"ask_about": lookup, "lookup": {}}
        elif isinstance(lookup, Mapping):
            changed |= {"ask_about": lookup.get("by_key"), "lookup": {n: v for n, v in lookup.items() if n != "by_key"}}
            if more := sorted(set(lookup) - {"by_key", "horizon", "agree"}):
                raise ValueError(f"lookup.{more[0]} belongs to HTTP: say lookup = {{by_key: function, horizon, agree}}")
            if not callable(changed["ask_about"]):
                raise ValueError("lookup.by_key is the function that is asked about a call")
        key = table.get("key")
        if isinstance(key, Mapping) and (more := sorted(set(key) - {"replay", "retention"})):
            raise ValueError(f"key.{more[0]} belongs to HTTP: the function is given the key, as request.key")
        return changed

    def contract(self, name: str) -> Contract:
        """The contract: it can be asked by key where there is a look-up, and is given the key in every case, which
        counts only where something is promised about it."""
        made = super().contract(name)
        key = replace(made.key, carrier="argument") if "key" in self.model_fields_set else made.key
        lookup = replace(made.lookup, by_key=self.ask_about is not None)
        connect = min(made.connect_timeout, made.deadline)
        return completed(replace(made, key=key, lookup=lookup, connect_timeout=connect), self.start_mark)

    def says(self) -> frozenset[Says]:
        """What any function may return."""
        return frozenset({Says.FINAL, Says.REFUSED})

    def build(
        self,
        name: str,
        accounts: Mapping[str, Account],
        secrets: Mapping[str, tuple[bytes, ...]] = MappingProxyType({}),
        environment: str = "development",
    ) -> SendProvider:
        """The provider that the function is. It has no webhook secrets, and tags nothing."""
        return SendProvider(self.contract(name), accounts, self.send, self.ask_about)


def _accounts(said: Any) -> Any:
    names = said if isinstance(said, list | tuple) else None
    if isinstance(said, Mapping):
        for name, account in said.items():
            if not isinstance(account, SendAccountSettings) and account:
                raise ValueError(f"accounts.{name} has settings: where a function sends, an account is a name alone")
        names = tuple(said)
    if names is None or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError('accounts are names, as accounts = ["eu", "us"]')
    return {name: SendAccountSettings(origin=f"send://{name}") for name in names}
