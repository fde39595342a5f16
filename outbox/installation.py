"""The installation of idem in a database: its secret, and what is said where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from idem.outbox.errors import StoreUnavailable

if TYPE_CHECKING:
    from psycopg import AsyncConnection

NOT_INSTALLED: Final = "this database has no idem installation: run `idem db upgrade`"

SECRET: Final = "SELECT secret FROM idem.installation"


async def secret(connection: AsyncConnection[Any]) -> bytes:
    """The secret that provider keys are derived from. Raises StoreUnavailable where the schema is not installed."""
    row = await (await connection.execute(SECRET)).fetchone()
    if row is None:
        raise StoreUnavailable(NOT_INSTALLED)
    return bytes(row[0])
