"""Checks provider, account and operation names, so that a misspelt name does not look like an empty list or a pause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from idem.cli.base import opening
from idem.cli.base.output import say
from idem.outbox.values.errors import ConfigError, OperatorRefused

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from idem.outbox.domain.catalogue import Catalogue


async def providers(connection: AsyncConnection[Any], catalogue: Catalogue | None) -> dict[str, set[str]]:
    """The accounts of each provider in the database or the configuration."""
    from idem.outbox.operator import pause

    known = await pause.providers(connection)
    for name, each in ({} if catalogue is None else catalogue.providers).items():
        known.setdefault(name, set()).update(each.accounts)
    return known


async def require(config: Path | None, connection: AsyncConnection[Any], provider: str, account: str | None) -> None:
    """Raises OperatorRefused for a provider or account that is neither configured nor used."""
    from idem.outbox.values.suggestions import nearest

    catalogue = opening.readable_catalogue(config)
    known = await providers(connection, catalogue)
    if provider not in known and (known or catalogue is not None):
        raise OperatorRefused(f"nothing was changed: there is no provider {provider!r}. {nearest(provider, known)}")
    accounts = known.get(provider, set())
    if account is not None and account not in accounts and catalogue is not None:
        raise OperatorRefused(
            f"nothing was changed: provider {provider} has no account {account!r}. {nearest(account, accounts)}"
        )


async def note(
    config: Path | None,
    connection: AsyncConnection[Any],
    provider: str | None,
    account: str | None,
    operation: str | None,
) -> None:
    """Note which filters of an empty list are neither configured nor used.

    Without a usable configuration only the database says which names exist, and it does not list operations.
    """
    from idem.outbox.values.suggestions import nearest

    if (provider, account, operation) == (None, None, None):
        return
    try:
        catalogue = opening.catalogue(opening.configuration(config))
    except ConfigError:
        catalogue = None
    known = await providers(connection, catalogue)
    if provider is not None and provider not in known:
        say(f"note: provider {provider!r} is neither configured nor used here. {nearest(provider, known)}")
        return
    accounts = set().union(*known.values()) if provider is None else known[provider]
    if account is not None and account not in accounts:
        say(f"note: account {account!r} is neither configured nor used here. {nearest(account, accounts)}")
    if operation is not None and catalogue is not None and operation not in catalogue.operations:
        say(f"note: operation {operation!r} is not configured here. {nearest(operation, catalogue.operations)}")
