"""What an application has defined and configured: its providers and operations, of idem.toml and of the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from idem.application.definition import Definition
from idem.outbox import config
from idem.outbox.config import Configuration
from idem.outbox.database.address import Address
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.local import LocalProvider
from idem.outbox.providers.send import SendProvider
from idem.outbox.values.errors import ConfigError
from idem.outbox.values.suggestions import nearest

if TYPE_CHECKING:
    from idem.outbox.config.http_settings import EndpointSettings
    from idem.outbox.recovery.guard import Durability


class Configured:
    """The part of `Idem` that reads its configuration; daemons, the tools and tests ask it too."""

    def __init__(self, path: Path | str | None, env: Mapping[str, str]) -> None:
        self._path = path
        self._env = env
        self._tables: dict[str, Mapping[str, Any]] = {}
        self._definitions: dict[str, Definition] = {}
        self._pointed: dict[str, str] = {}
        self._built: tuple[Mapping[str, Provider], Mapping[str, OperationSpec]] | None = None
        self._found = self._load(accepting=True)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Every provider, as accepting needs it."""
        return self._everything()[0]

    @property
    def operations(self) -> Mapping[str, OperationSpec]:
        """Every operation, of the file and of the code."""
        return self._everything()[1]

    def configuration(self) -> Configuration:
        """The whole configuration with its credentials, for daemons. Raises ConfigError with every mistake."""
        found = self._load(accepting=False)
        providers, operations = self._build(found)
        return dataclasses.replace(found, providers=providers, operations=operations)

    def catalogue(self) -> Catalogue:
        """What daemons know, with the credentials. Raises ConfigError."""
        # In a test the providers are fake ones, and their credentials are not there.
        found = self._load(accepting=bool(self._pointed))
        providers, operations = self._build(found)
        return Catalogue(found.settings.environment, providers, operations)

    def accepting(self) -> Catalogue:
        """What this process knows: it calls no provider, so no credential is needed."""
        return Catalogue(self._found.settings.environment, *self._everything())

    @property
    def webhook_settings(self) -> EndpointSettings:
        """The limits of the endpoint for events: `[webhooks]`."""
        return self._found.settings.webhooks

    @property
    def database_url(self) -> str:
        """Its URL in libpq's words, `postgresql://…`, password included. Raises ConfigError where nothing names one."""
        return self.database_address.url

    @property
    def database_address(self) -> Address:
        """That of IDEM_DATABASE_URL, else of idem.toml. Raises ConfigError where nothing names one."""
        return config.database_address(self._path, self._env)

    @property
    def durability(self) -> Durability:
        """What a new timeline of the database means: `database.durability`."""
        return self._found.settings.database.durability

    @contextmanager
    def pointed_at(self, provider: str, origin: str) -> Iterator[None]:
        """For tests: the provider's contract stays, its address is another one, and no credential is needed."""
        if provider not in self._found.providers:
            raise ConfigError(f"providers.{provider}: no such provider. {nearest(provider, self._found.providers)}")
        if isinstance(self._found.providers[provider], SendProvider):
            raise ConfigError(
                f"providers.{provider}: a function sends for it and has no address: replace it in the test"
            )
        before = self._pointed.get(provider)
        self._point(provider, origin)
        try:
            yield
        finally:
            self._point(provider, before)

    def close(self) -> None:
        """Forget what was read of the database's address: another may be meant now."""
        self.__dict__.pop("_configured_address", None)

    @cached_property
    def _configured_address(self) -> Address | None:
        with suppress(ConfigError):
            return self.database_address
        return None

    def _load(self, *, accepting: bool) -> Configuration:
        return config.load(self._path, self._env, providers=self._tables, accepting=accepting, optional=True)

    def _everything(self) -> tuple[Mapping[str, Provider], Mapping[str, OperationSpec]]:
        self._built = built = self._built or self._build(self._found)
        return built

    def _build(self, found: Configuration) -> tuple[Mapping[str, Provider], Mapping[str, OperationSpec]]:
        providers: dict[str, Provider] = {LOCAL: LocalProvider()}
        for name, provider in found.providers.items():
            origin = self._pointed.get(name)
            if origin is not None and isinstance(provider, HttpProvider):
                accounts = {each.name: dataclasses.replace(each, origin=origin) for each in provider.accounts.values()}
                provider = dataclasses.replace(provider, accounts=accounts)
            providers[name] = provider
        operations = {**found.operations, **{name: each.build(found) for name, each in self._definitions.items()}}
        return MappingProxyType(providers), MappingProxyType(operations)

    def _point(self, provider: str, origin: str | None) -> None:
        if origin is None:
            self._pointed.pop(provider, None)
        else:
            self._pointed[provider] = origin
        self._built = None
        # Another test has another database.
        self.close()
