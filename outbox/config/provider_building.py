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
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.webhook_settings import WebhookSettings


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

    `environment` is the installation's name, which the deployment tag is made of.
    """
    nothing = Credentials()
    return HttpProvider(
        contract=replace(settings.contract(name), deployment=None if settings.deployment_tag is None else environment),
        accounts={
            account: Account(account, each.origin, found.headers, found.signer, found.authorities)
            for account, each in settings.accounts.items()
            for found in [credentials.get(account, nothing)]
        },
        outcome=settings.rules(),
        errors=settings.errors,
        lookups=settings.lookup.ways(),
        webhook=None if settings.webhook is None else settings.webhook.build(secrets, settings.addresses()),
        events=WebhookSettings() if settings.webhook is None else settings.webhook,
        encoding=settings.encoding,
        tag=settings.deployment_tag,
        event_lookup=settings.lookup.by_events,
        ledger=settings.list,
        cancels=settings.cancel_by_key,
        headers={header.lower(): text for header, text in settings.headers.items()},
        object=settings.object,
        object_paths=settings.object.path,
        object_types=settings.object_types,
        account_question=settings.account_check,
    )
