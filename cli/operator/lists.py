"""A list of entries for an operator: its filters by the database's clock, and a note about names that do not exist."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from idem.cli.base import opening
from idem.cli.base.option_groups import ListFilters
from idem.cli.operator import names

if TYPE_CHECKING:
    from psycopg import AsyncConnection

Records: TypeAlias = list[dict[str, Any]]


def read(
    config: Path | None,
    filters: ListFilters,
    query: Callable[..., Awaitable[Records]],
    *,
    page: tuple[str, Any, Callable[[AsyncConnection[Any], Any], Awaitable[Any]]] | None = None,
    **more: Any,
) -> Records:
    """The entries that match. `page`: the filter by the last id of the page before, that id, and how to find it.

    An empty list comes with a note about each filter that names nothing here. Raises a usage error.
    """
    given = filters.checked() | more

    async def run() -> Records:
        async with opening.connected(config) as connection:
            for name in ("since", "until"):
                given[name] = await opening.time_of(connection, given[name])
            if page is not None:
                name, prefix, find = page
                given[name] = None if prefix is None else await find(connection, prefix)
            found = await query(connection, **given)
            if not found:
                operation = given.get("operation")
                await names.note(config, connection, filters.provider, filters.account, operation)
            return found

    return asyncio.run(run())
