"""The providers of an installation, made of their settings and of what was resolved for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from idem.outbox.config.credentials import Credentials
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.send_settings import SendSettings
from idem.outbox.domain.contract import Account
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.events import EventReader
from idem.outbox.providers.http import HttpProvider
from idem.outbox.values import json_pointer


def build(
    settings: ProviderSettings,
    name: str,
    credentials: Mapping[str, Credentials],
    secrets: Mapping[str, tuple[bytes, ...]],
    environment: str,
) -> Provider:
    """The provider, over HTTP (`build_http`) or over a function."""
    if isinstance(settings, SendSettings):
        return settings.provider(name)
    return build_http(settings, name, credentials, secrets, environment)


def build_http(
    settings: ProviderSettings,
    name: str,
    credentials: Mapping[str, Credentials],
    secrets: Mapping[str, tuple[bytes, ...]] = MappingProxyType({}),
    environment: str = "development",
) -> HttpProvider:
    """The provider over HTTP; `credentials` are the resolved ones of each account, `secrets` its webhook secrets.

    `environment` is the installation's name, which the mark is made of.
    """
    nothing, events = Credentials(), settings.lookup.by_events
    kinds = None if settings.kinds is None else settings.kinds.build()
    return HttpProvider(
        contract=replace(settings.contract(name), deployment=None if settings.mark is None else environment),
        accounts={
            account: Account(account, each.origin, found.headers, found.signer, found.authorities)
            for account, each in settings.accounts.items()
            for found in [credentials.get(account, nothing)]
        },
        outcome=settings.rules(),
        errors=settings.errors.build(),
        lookups=tuple(look.build(by, settings.lookup.slack, kinds) for by, look in settings.lookup.ways()),
        webhook=None if settings.webhook is None else settings.webhook.build(secrets, settings.addresses()),
        events=EventReader() if settings.webhook is None else settings.webhook.reader(settings.object.reference),
        encoding=settings.encoding,
        mark=None if settings.mark is None else settings.mark.build(environment),
        event_lookup=None if events is None else events.build(settings.lookup.slack, kinds),
        ledger=None if settings.list is None else settings.list.build(settings.object),
        cancels=None if settings.cancel_by_key is None else settings.cancel_by_key.build(),
        headers={header.lower(): text for header, text in settings.headers.items()},
        inside=tuple(json_pointer.parse(at) for at in settings.object.inside),
        kinds=kinds,
        whose=None if settings.account_check is None else settings.account_check.build(),
    )
