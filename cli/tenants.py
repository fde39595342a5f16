"""`idem tenants`: how each tenant uses its keys."""

import asyncio
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import typer

from idem.cli.base import opening
from idem.cli.base.options import Config, Json, Limit, examples, group, moment
from idem.cli.base.output import as_json, table

app = group("How each tenant uses its keys.", "idem tenants top", "idem tenants top --by mismatch --since 7d")

# A copy of outbox.tenant_usage's, which the help must not import; a test compares them.
RevokedBy: TypeAlias = Literal[
    "misuse", "requests", "created", "replayed", "mismatch", "key_missing", "key_invalid", "suspicious_key",
    "expired_reuse", "limited", "body_invalid", "params_invalid",
]  # fmt: skip
COLUMNS = (
    ("misuse", "misuse"), ("requests", "requests"), ("created", "new keys"), ("replayed", "replayed"),
    ("mismatch", "other content"), ("key_missing", "no key"), ("key_invalid", "bad key"),
    ("suspicious_key", "personal key"), ("expired_reuse", "expired key"), ("limited", "limited"),
    ("body_invalid", "bad body"), ("params_invalid", "bad params"),
)  # fmt: skip


@app.command(epilog=examples("idem tenants top", "idem tenants top --by mismatch --since 7d --json"))
def top(
    config: Config = None,
    since: Annotated[
        str,
        typer.Option(
            "--since", help="From the hour of this time on: 2025-01-31T12:00:00Z, or how long ago, e.g. 24h or 7d."
        ),
    ] = "24h",
    by: Annotated[
        RevokedBy, typer.Option("--by", help="What to rank by; misuse is the sum of all mistakes.")
    ] = "misuse",
    limit: Limit = 20,
    as_data: Json = False,
) -> None:
    """Show the tenants that misuse keys most: other content under a used key, no key, personal data as a key.

    idem counts by the hour for the HTTP API, the library and SQL, and keeps the counts for 30 days. The last seconds
    may be missing. Counts of the library and SQL appear once a sweeper has added them up.
    """
    start = moment(since)

    async def read() -> tuple[datetime, list[dict[str, Any]]]:
        from idem.outbox.tenants import usage

        order: usage.UsageOrder = "misuse" if by == "misuse" else usage.TenantCounter(by)
        async with opening.connected(config) as connection:
            at = await opening.time_of(connection, start)
            assert at is not None
            return at, await usage.top(connection, since=at, by=order, limit=limit)

    at, found = asyncio.run(read())
    if as_data:
        as_json({"since": at, "by": by, "tenants": found})
        return
    # Most counts are zero for all tenants, and a table must fit into a terminal.
    shown = [(name, title) for name, title in COLUMNS if any(each[name] for each in found)]
    table(
        ["tenant", *(title for _, title in shown)],
        [[each["tenant_id"], *(each[name] for name, _ in shown)] for each in found],
        empty=f"no tenant has any {by} in this time",
    )
