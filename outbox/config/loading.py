"""The configuration of a process: read, checked as a whole, and built. Nothing is connected here."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from idem.outbox.config import declared_flow, flow_tables, presets, source
from idem.outbox.config.body_checks import check_bodies
from idem.outbox.config.consistency import check_operation, check_provider, check_together
from idem.outbox.config.credentials import Vault, resolve_accounts
from idem.outbox.config.findings import Findings
from idem.outbox.config.flow_settings import FlowSettings
from idem.outbox.config.operation_settings import OperationSettings, OperationTable
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.send_settings import SendSettings
from idem.outbox.config.settings import InstallationSettings
from idem.outbox.config.webhook_checks import check_webhook, resolve
from idem.outbox.database.address import Address, libpq
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.contract_checks import Finding
from idem.outbox.values.errors import ConfigError
from idem.outbox.values.settings_base import Secret, Section
from idem.outbox.values.suggestions import nearest

TABLES: Final = ("providers", "operations")

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

Table = TypeVar("Table", bound=Section)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What idem.toml and the environment say. `database_url` may hold a password, providers hold credentials."""

    path: Path
    settings: InstallationSettings
    provider_settings: Mapping[str, ProviderSettings]
    operation_settings: Mapping[str, OperationTable]
    providers: Mapping[str, Provider] = field(repr=False)
    operations: Mapping[str, OperationSpec] = field(repr=False)
    database_url: str | None = field(repr=False, default=None)
    warnings: tuple[Finding, ...] = ()


def load(
    path: Path | str | None = None,
    env: Mapping[str, str] = os.environ,
    *,
    providers: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    accepting: bool = False,
    optional: bool = False,
) -> Configuration:
    """Read `path` (else IDEM_CONFIG, else ./idem.toml) and the `IDEM_…` variables of `env`.

    `providers` are tables beside those of the file, as Python code defines them. `accepting`: for a process that only
    accepts, and so needs no credentials. `optional`: the default file need not exist.

    Raises ConfigError with every mistake at once; each names the setting and what to do.
    """
    found = source.find(path, env)
    missing = optional and path is None and not env.get(source.FILE_VARIABLE) and not found.exists()
    read = ({}, "") if missing else source.read(found)
    configuration, findings = _examine(found, env, read, providers, accepting=accepting)
    if configuration is None:
        raise ConfigError(*map(str, findings.errors))
    return configuration


def explain(path: Path | str | None = None, env: Mapping[str, str] = os.environ) -> list[Finding]:
    """Every mistake and doubt in a configuration, errors first. Never raises for a user's mistake."""
    found = source.find(path, env)
    try:
        _, findings = _examine(found, env, source.read(found))
    except ConfigError as error:
        return [_about_the_file(found, problem) for problem in error.problems]
    return sorted(findings.found, key=lambda finding: finding.level)


def database_address(path: Path | str | None = None, env: Mapping[str, str] = os.environ) -> Address:
    """The database's address alone: from IDEM_DATABASE_URL, else from [database] of the file.

    A command that only reads the database needs no credentials, and works with a mistake elsewhere in the file.
    Raises ConfigError.
    """
    found = source.find(path, env)
    # Variables are enough, unless a file was named: then a typing error in its name must not go unnoticed.
    unnamed = path is None and not env.get(source.FILE_VARIABLE)
    raw, text = ({}, "") if unnamed and not found.exists() else source.read(found)
    merged, origins = source.overlay(raw, env)
    findings = Findings(source.lines(text), origins)
    settings = _installation(findings, {"database": merged.get("database", {})})
    url = _database_url(findings, Vault(findings, env, found.parent), settings)
    if findings.errors:
        raise ConfigError(*map(str, findings.errors))
    secret = None if settings is None else settings.database.url_from
    if secret is None:
        return Address(_named(url), source=f"database.url of {found}")
    if secret.env is not None:
        return Address(_named(url), source=secret.env)
    # It may be changed while this process runs: the password of each connection is the one that stands there then.
    beside = found.parent
    return Address(
        _named(url), source=f"database.url_from, the file {secret.file}", read=lambda: _again(env, beside, secret)
    )


def _again(env: Mapping[str, str], beside: Path, secret: Secret) -> str:
    findings = Findings({}, {})
    url = Vault(findings, env, beside).text(secret, ("database", "url_from"))
    if url is None:
        raise ConfigError(*(finding.what for finding in findings.errors))
    return url


def _named(url: str | None) -> str:
    if url is None:
        raise ConfigError(
            "database.url: nothing names a database. Set IDEM_DATABASE_URL=postgresql://user:password@host/name"
        )
    return url


def _about_the_file(path: Path, problem: str) -> Finding:
    what, _, do = problem.removeprefix(f"{path}: ").partition(". ")
    return Finding("error", str(path), what, do or "Correct the file")


def _examine(
    path: Path,
    env: Mapping[str, str],
    read: tuple[dict[str, Any], str],
    more: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    *,
    accepting: bool = False,
) -> tuple[Configuration | None, Findings]:
    raw, text = read
    merged, origins = source.overlay(raw, env)
    findings = Findings(source.lines(text), origins)
    vault = Vault(findings, env, path.parent, needed=not accepting)
    if isinstance(merged.get("providers", {}), dict):
        written = {**merged.get("providers", {}), **more}
        merged["providers"] = {name: presets.expanded(findings, name, table) for name, table in written.items()}

    general = {name: value for name, value in merged.items() if name not in TABLES}
    settings = _installation(findings, general)
    provider_settings = _tables(findings, merged, "providers", ProviderSettings)
    if isinstance(merged.get("operations"), dict):
        merged["operations"] = flow_tables.own(findings, merged["operations"])
    operation_settings: dict[str, OperationTable] = _tables(findings, merged, "operations", OperationTable)

    url = _database_url(findings, vault, settings)
    resolved = {
        name: resolve_accounts(vault, ("providers", name, "accounts"), provider.accounts)
        for name, provider in provider_settings.items()
    }
    secrets = resolve(findings, vault, provider_settings)

    # A mistake elsewhere in the installation's tables does not hide those of a contract.
    known = settings if settings is not None else InstallationSettings()
    for name, provider in provider_settings.items():
        check_provider(findings, name, provider, known)
        check_webhook(findings, name, provider, known.sweeper.webhook_retention)
    accounts: dict[str, tuple[str, ...]] = {}
    tables = merged.get("providers")
    for name, operation in operation_settings.items():
        used = check_operation(findings, name, operation, provider_settings, tables if isinstance(tables, dict) else {})
        if used is not None:
            accounts[name] = used
    if settings is not None:
        check_together(findings, settings, provider_settings, operation_settings, merged.get("operations"))
        check_bodies(findings, settings.environment, provider_settings, operation_settings)
    _unknown_variables(findings, env, merged)

    if settings is None or findings.errors:
        return None, findings
    configuration = Configuration(
        path=path,
        settings=settings,
        provider_settings=MappingProxyType(provider_settings),
        operation_settings=MappingProxyType(operation_settings),
        providers=MappingProxyType(
            {
                name: provider.build(name, resolved[name], secrets[name], settings.environment)
                for name, provider in provider_settings.items()
            }
        ),
        operations=MappingProxyType(
            {
                name: declared_flow.operation(name, each, accounts[name], provider_settings)
                for name, each in operation_settings.items()
            }
        ),
        database_url=url,
        warnings=tuple(findings.found),
    )
    return configuration, findings


def _installation(findings: Findings, raw: dict[str, Any]) -> InstallationSettings | None:
    # The tables that are not looked at here are known names all the same.
    known = list(InstallationSettings.model_fields)
    for name in [name for name in raw if name not in known]:
        findings.error((name,), "there is no such setting", nearest(name, [*known, *TABLES]))
        del raw[name]
    try:
        return InstallationSettings.model_validate(raw)
    except ValidationError as error:
        findings.invalid(InstallationSettings, error)
        return None


def _tables(findings: Findings, merged: Mapping[str, Any], kind: str, model: type[Table]) -> dict[str, Table]:
    # One by one, so that a mistake in one table does not hide those in the others.
    found: dict[str, Table] = {}
    tables = merged.get(kind, {})
    if not isinstance(tables, dict):
        findings.error((kind,), "it must be a table", f"As in [{kind}.name]")
        return found
    for name, raw in tables.items():
        if not NAME.fullmatch(name):
            findings.error(
                (kind, name), "it is not a usable name", "Use a-z, 0-9, dots, dashes and underscores, up to 63"
            )
        own = _model(model, raw)
        try:
            found[name] = own.model_validate(raw)
        except ValidationError as error:
            findings.invalid(own, error, (kind, name))
    return found


def _model(model: type[Table], raw: Any) -> type[Table]:
    """The model of a table that says what it is about, else the usual one."""
    said: type[Section] = model
    if issubclass(OperationTable, model):
        said = FlowSettings if isinstance(raw, Mapping) and "steps" in raw else OperationSettings
    elif isinstance(raw, Mapping) and raw.get("kind") == "send" and issubclass(SendSettings, model):
        said = SendSettings
    return said  # type: ignore[return-value]


def _database_url(findings: Findings, vault: Vault, settings: InstallationSettings | None) -> str | None:
    if settings is None:
        return None
    database = settings.database
    if database.url_from is None:
        return database.url
    loc = ("database", "url_from")
    if database.url is not None:
        findings.error(("database", "url"), "there is url_from too", "Keep one of them")
    url = vault.text(database.url_from, loc)
    if url is not None:
        try:
            libpq(url)
        except ValueError as error:
            named = database.url_from.env or f"the file {database.url_from.file}"
            where = "" if named == source.URL_VARIABLE else f"{named}: "
            findings.error(loc, f"{where}{error}", "Correct the value")
            return None
    return url


def _unknown_variables(findings: Findings, env: Mapping[str, str], merged: Mapping[str, Any]) -> None:
    named = frozenset(_secret_variables(merged))
    for variable, close in source.unknown(env, named):
        # A warning, not an error: the environment is shared with programs that idem does not know.
        findings.found.append(
            Finding(
                "warning",
                variable,
                "there is no such setting",
                f"Did you mean {close}?" if close else "Remove it, or ignore this if another program reads it",
            )
        )


def _secret_variables(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["env"]] if isinstance(value.get("env"), str) else []
        return own + [name for item in value.values() for name in _secret_variables(item)]
    if isinstance(value, list):
        return [name for item in value for name in _secret_variables(item)]
    return []
