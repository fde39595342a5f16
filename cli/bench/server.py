"""The server that a bench runs on."""

from __future__ import annotations

import os
from pathlib import Path

from idem.cli.base import opening
from idem.outbox.config import source
from idem.outbox.database.address import Address
from idem.outbox.values.errors import ConfigError


def named(config: Path | None, database_url: str | None) -> str | None:
    """The URL of the server that the user names: by the option, IDEM_DATABASE_URL or the configuration; None if none of
    them does. Raises ConfigError, which never quotes the URL.
    """
    if database_url is not None:
        try:
            address = Address(database_url, source="--database-url")
        except ValueError as error:
            raise ConfigError(f"--database-url: {error}") from None
        opening.named(address)
        return address.now()
    return opening.address(config).now() if _is_named(config) else None


def _is_named(config: Path | None) -> bool:
    if os.environ.get(opening.URL):
        return True
    path = source.find(config, os.environ)
    raw = {} if config is None and not path.exists() else source.read(path)[0]
    database = source.overlay(raw, os.environ)[0].get("database")
    return isinstance(database, dict) and bool(database.get("url") or database.get("url_from"))
