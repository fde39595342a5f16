"""`idem intents`: list intents, show one with its timeline, cancel one."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import typer

from idem.cli.base import opening
from idem.cli.base.application import App
from idem.cli.base.options import (
    AccountOption,
    ByOption,
    Config,
    Id,
    Json,
    Label,
    Limit,
    Params,
    ProviderOption,
    Reference,
    SinceOption,
    Sure,
    Unmask,
    Until,
    Why,
    Yes,
    an_id,
    confirm,
    examples,
    moment,
    who,
)
from idem.cli.base.output import age, as_json, say, table
from idem.cli.operator import names
from idem.outbox.values.errors import OperatorRefused

app = typer.Typer(
    no_args_is_help=True,
    help="Intents: what clients requested, and the outcome.",
    epilog=examples("idem intents list --state unknown", "idem intents show 0193b6a0-0000-7000-8000-000000000000"),
)

Intent = Annotated[
    Id, typer.Argument(parser=an_id, metavar="ID", help="The intent's id, or its beginning.", show_default=False)
]
State = Annotated[
    Literal["in_progress", "completed", "failed_retryable", "unknown"] | None,
    typer.Option("--state", help="Only intents in this state."),
]


@app.command(
    "list",
    epilog=examples("idem intents list --tenant acme --state failed_retryable", "idem intents list --key K --json"),
)
def list_(
    config: Config = None,
    tenant: Annotated[str | None, typer.Option(help="Only intents of this tenant.")] = None,
    state: State = None,
    operation: Annotated[str | None, typer.Option(help="Only intents of this operation.")] = None,
    provider: ProviderOption = None,
    key: Annotated[str | None, typer.Option(help="Only intents with this idempotency key.")] = None,
    account: AccountOption = None,
    label: Label = None,
    reference: Reference = None,
    since: SinceOption = None,
    until: Until = None,
    before: Annotated[
        Id | None,
        typer.Option(
            parser=an_id, metavar="ID", help="Only intents older than this one: the last of the previous page."
        ),
    ] = None,
    limit: Limit = 100,
    as_data: Json = False,
) -> None:
    """List intents, newest first. In the JSON, `next` is the --before of the next page."""
    found = asyncio.run(
        _list(
            config, tenant=tenant, state=state, operation=operation, provider=provider, key=key, account=account,
            label=label, reference=reference, since=since, until=until, before=before, limit=limit,
        )
    )  # fmt: skip
    following = found[-1]["id"] if len(found) == limit else None
    if as_data:
        as_json({"intents": found, "next": following})
        return
    table(
        ["intent", "tenant", "operation", "key", "state", "row", "age", "provider", "account", "reference", "label"],
        [
            [n["id"], n["tenant_id"], n["operation"], n["idempotency_key"], n["outcome"] or n["state"], n["status"],
             age(n["age"]), n["provider"], n["account"], n["provider_reference"], n["label"]]
            for n in found
        ],
        empty="no intent matches",
        drop=("account", "provider", "label", "row", "operation", "age", "tenant", "reference", "key"),
    )  # fmt: skip
    if following is not None:
        say(f"more: --before {following}")


async def _list(
    config: Path | None, *, since: str | None, until: str | None, before: Any, **filters: Any
) -> list[dict[str, Any]]:
    from idem.outbox.operator import id_prefixes, listing

    start, end = moment(since), moment(until, "--until")
    async with opening.connected(config) as connection:
        times = await opening.times(connection, start, end)
        last = None if before is None else await id_prefixes.intent(connection, before)
        found = await listing.intents(connection, before=last, **times, **filters)
        if not found:
            await names.note(
                config, connection, **{name: filters[name] for name in ("provider", "account", "operation")}
            )
        return found


@app.command(epilog=examples("idem intents show 0193b6a0-0000-7000-8000-000000000000 --json"))
def show(
    intent: Intent,
    config: Config = None,
    params: Params = False,
    unmask: Unmask = False,
    by: ByOption = None,
    as_data: Json = False,
) -> None:
    """Show one intent: its state and its timeline."""
    from idem.cli.operator.timeline import show_intent

    found = asyncio.run(_show(config, intent, params, who(by) if unmask else None))
    if as_data:
        as_json(found)
    else:
        show_intent(found)


async def _show(config: Path | None, prefix: Any, params: bool, unmask: str | None) -> dict[str, Any]:
    from idem.outbox.operator import id_prefixes, listing, unmasking

    async with opening.connected(config) as connection:
        intent = await id_prefixes.intent(connection, prefix)
        if unmask is not None:
            await unmasking.note(connection, intent, by=unmask)
        return known(await listing.intent(connection, intent, params=params, unmask=unmask is not None), intent)


def known(found: dict[str, Any] | None, intent: UUID) -> dict[str, Any]:
    """The intent, if it was found. Raises OperatorRefused if not."""
    if found is None:
        raise OperatorRefused(f"intent {intent} does not exist in this database: `idem intents list` shows the intents")
    return found


@app.command(
    epilog=examples('idem intents cancel 0193b6a0-0000-7000-8000-000000000000 --reason "ordered twice, ticket 4711"')
)
def cancel(
    intent: Intent,
    reason: Why,
    config: Config = None,
    app: App = None,
    by: ByOption = None,
    sure: Sure = False,
    yes: Yes = False,
    as_data: Json = False,
) -> None:
    """Cancel an intent that was not executed. Its key then answers 409 `cancelled`."""
    asyncio.run(_cancel(config, intent, who(by), reason, sure, yes, as_data))


async def _cancel(config: Path | None, prefix: Any, by: str, reason: str, sure: bool, yes: bool, as_data: bool) -> None:
    from idem.cli.operator.preview import CANCEL, prospects
    from idem.outbox.operator import actions, id_prefixes, listing

    configuration = opening.configuration(config)
    catalogue = opening.catalogue(configuration)
    async with opening.deciding(config, configuration) as connection:
        intent = await id_prefixes.intent(connection, prefix)
        found = known(await listing.intent(connection, intent), intent)
        held = await actions.snapshot(connection, intent)
        for each in prospects(found, held, catalogue, sure=sure):
            if each.command == CANCEL:
                say(f"intent {intent} ({found['operation']}, {found['label'] or 'no label'}): {each.text}")
        if held is not None:
            confirm("Cancel it?", yes=yes)
        done = await actions.cancel(
            connection, catalogue, intent, by=by, reason=reason, version=held.row.version if held else None,
            know_it_did_not_happen=sure,
        )  # fmt: skip
    if as_data:
        as_json(asdict(done))
    else:
        typer.echo(f"intent {intent} is cancelled")
