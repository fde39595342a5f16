"""`idem token`: tokens that authenticate clients of the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from idem.cli.base import opening
from idem.cli.base.options import ByOption, Config, Id, Json, Limit, Yes, confirm, examples, group, id_argument, who
from idem.cli.base.output import as_json, fields, say, table

if TYPE_CHECKING:
    from idem.outbox.tenants.tokens import Token

app = group(
    "Tokens of tenants, for the HTTP API.", "idem token create acme --label checkout", "idem token list --tenant acme"
)


@app.command(epilog=examples("idem token create acme --label checkout", "idem token create acme --label ci --json"))
def create(
    tenant: Annotated[
        str, typer.Argument(help="The tenant: 1 to 63 letters, digits, dots, dashes, underscores.", show_default=False)
    ],
    label: Annotated[
        str, typer.Option("--label", help="Who uses the token, e.g. checkout-service.", show_default=False)
    ],
    config: Config = None,
    by: ByOption = None,
    as_data: Json = False,
) -> None:
    """Create a token. idem shows it only this once and stores a hash of it.

    All tokens of a tenant are one caller: they share its keys, its answers and its limits. A program can read, retry
    and cancel the requests of another program of the same tenant, and two programs that use the same key for one
    operation make one request. Give programs that must not share keys a tenant each, or set `key_owner = "label"` for
    the operation: then a key belongs to the tokens with the label of the token that sent it. Keep the label for a new
    token of the same program.
    """
    from idem.outbox.tenants.tokens import check_label, check_tenant

    _usable(check_tenant, tenant, "TENANT")
    _usable(check_label, label, "--label")

    async def run() -> tuple[UUID, str]:
        from idem.outbox.tenants import tokens

        async with opening.writing(config, opening.environment(config)[0]) as connection:
            return await tokens.create(connection, tenant, label, by=who(by))

    token_id, token = asyncio.run(run())
    if as_data:
        as_json({"id": token_id, "tenant": tenant, "label": label, "token": token})
        return
    fields([("token", token), ("id", token_id), ("tenant", tenant), ("label", label)])
    say("idem shows the token only this once; the client sends it as `Authorization: Bearer <token>`")


@app.command("list", epilog=examples("idem token list", "idem token list --tenant acme --revoked --json"))
def list_(
    config: Config = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only tokens of this tenant.")] = None,
    revoked: Annotated[bool, typer.Option("--revoked", help="Include revoked tokens.")] = False,
    limit: Limit = 100,
    as_data: Json = False,
) -> None:
    """List tokens by tenant and age, with the day of their last use."""

    async def read() -> list[Token]:
        from idem.outbox.tenants import tokens

        async with opening.connected(config) as connection:
            return await tokens.tokens(connection, tenant=tenant, revoked=revoked, limit=limit)

    found = asyncio.run(read())
    if as_data:
        as_json({"tokens": [asdict(each) for each in found]})
        return
    table(
        ["id", "tenant", "label", "created", "by", "last used", *(["revoked", "by", "reason"] if revoked else [])],
        [
            [each.id, each.tenant_id, each.label, each.created_at, each.created_by,
             f"{each.last_used_at:%Y-%m-%d}" if each.last_used_at else None,
             *([each.revoked_at, each.revoked_by, each.revoked_reason] if revoked else [])]
            for each in found
        ],
        empty="there are no tokens: `idem token create TENANT --label L` creates one",
    )  # fmt: skip


@app.command(epilog=examples('idem token revoke 0193b6a0-0000-7000-8000-000000000000 --reason "left the company"'))
def revoke(
    token: Annotated[Id, id_argument("The token's id, or its beginning (see `idem token list`).")],
    reason: Annotated[str, typer.Option("--reason", help="Why; stored with the token.", show_default=False)],
    config: Config = None,
    by: ByOption = None,
    yes: Yes = False,
    as_data: Json = False,
) -> None:
    """Revoke a token permanently. Running API processes accept it for at most api.token_cache more, 10 s by default."""
    done = asyncio.run(_revoke(config, token, reason, who(by), yes=yes))
    if as_data:
        as_json(asdict(done))
    else:
        typer.echo(f"revoked: {done.label} of {done.tenant_id}")


async def _revoke(config: Path | None, prefix: Any, reason: str, by: str, *, yes: bool) -> Token:
    from idem.outbox.operator import id_prefixes
    from idem.outbox.tenants import tokens

    async with opening.writing(config, opening.environment(config)[0]) as connection:
        token_id = await id_prefixes.token(connection, prefix)
        found = await tokens.token(connection, token_id)
        used = f"last used on {found.last_used_at:%Y-%m-%d}" if found.last_used_at else "never used"
        say(f"token {found.id}: {found.label} of tenant {found.tenant_id}, {used}")
        if found.revoked_at is None:
            confirm("Revoke it?", yes=yes)
        return await tokens.revoke(connection, token_id, by=by, reason=reason)


def _usable(check: Callable[[str], Any], value: str, name: str) -> None:
    try:
        check(value)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r}: {error}", param_hint=name) from None
