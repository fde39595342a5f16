"""Reads the installation of idem in a database: its secret, and the error if there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from idem.outbox.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import AsyncConnection

    from idem.outbox.domain.provider import Provider

NOT_INSTALLED: Final = "this database has no idem installation: run `idem db upgrade`"

SECRET: Final = "SELECT secret, environment FROM idem.installation"


def other_environment(found: str, configured: str | None) -> str | None:
    """What is said where the database belongs to another environment than is configured; None: to the same, or the
    configuration does not say."""
    if configured in (None, found):
        return None
    return (
        f"environment: the configuration says {configured}, but this database is {found}: it is the wrong database, "
        "or the wrong idem.toml"
    )


def check_deployment_tags(environment: str, providers: Iterable[Provider]) -> None:
    """Raises StoreUnavailable if a request from here would carry another deployment's tag than this database's.

    Daemons of another environment do not start; an application that only accepts would not notice.
    """
    for provider in providers:
        tag = provider.contract.deployment
        if tag not in (None, environment):
            raise StoreUnavailable(
                f"this database belongs to environment {environment!r}, and a request to "
                f"{provider.contract.provider} would be tagged {tag!r}: set IDEM_ENVIRONMENT={environment}, or "
                "check which database this is"
            )


async def secret(connection: AsyncConnection[Any]) -> bytes:
    """The secret that provider keys are derived from. Raises StoreUnavailable where the schema is not installed."""
    row = await (await connection.execute(SECRET)).fetchone()
    if row is None:
        raise StoreUnavailable(NOT_INSTALLED)
    return bytes(row[0])
