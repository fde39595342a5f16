"""`idem intents`: list intents, show one with its timeline, cancel one, and what waits for its turn."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import UUID

import typer

from idem.cli.base import opening
from idem.cli.base.option_groups import ListFilters, OperatorOptions, grouped
from idem.cli.base.options import (
    ByOption,
    Config,
    Id,
    Json,
    Limit,
    Params,
    Sure,
    Unmask,
    Why,
    confirm,
    examples,
    group,
    id_argument,
    id_option,
    who,
)
from idem.cli.base.output import age, as_json, say, state_text, table
from idem.cli.operator import lists
from idem.outbox.values.errors import OperatorRefused

app = group(
    "Intents: what clients requested, and the outcome.",
    "idem intents list --state unknown",
    "idem intents show 0193b6a0-0000-7000-8000-000000000000",
)

Intent = Annotated[Id, id_argument("The intent's id, or its beginning.")]
Status = Annotated[
    str | None,
    typer.Option("--status", help="Only intents whose row has this status, e.g. approval: what waits for a person."),
]
State = Annotated[
    Literal["in_progress", "completed", "failed_retryable", "unknown"] | None,
    typer.Option("--state", help="Only intents in this state."),
]


@app.command(
    "list",
    epilog=examples(
        "idem intents list --tenant acme --state failed_retryable",
        "idem intents list --status approval",
        "idem intents list --key K --json",
        "idem intents list --step ship",
    ),
)
@grouped
def list_(
    filters: ListFilters,
    config: Config = None,
    tenant: Annotated[str | None, typer.Option(help="Only intents of this tenant.")] = None,
    state: State = None,
    status: Status = None,
    operation: Annotated[str | None, typer.Option(help="Only intents of this operation.")] = None,
    step: Annotated[str | None, typer.Option(help="Only flows whose open step has this name.")] = None,
    key: Annotated[str | None, typer.Option(help="Only intents with this idempotency key.")] = None,
    before: Annotated[Id | None, id_option("Only intents older than this one: the last of the previous page.")] = None,
    limit: Limit = 100,
    as_data: Json = False,
) -> None:
    """List intents, newest first. In the JSON, `next` is the --before of the next page."""
    from idem.outbox.operator import id_prefixes, intent_list

    found = lists.read(
        config, filters, intent_list.intents, page=("before", before, id_prefixes.intent), tenant=tenant, state=state,
        status=known_status(status), operation=operation, step=step, key=key, limit=limit,
    )  # fmt: skip
    following = found[-1]["id"] if len(found) == limit else None
    if as_data:
        as_json({"intents": found, "next": following})
        return
    table(
        ["intent", "tenant", "operation", "step", "key", "state", "row", "age", "provider", "account", "reference",
         "asked by", "label"],
        [
            [n["id"], n["tenant_id"], n["operation"], n["step"], n["idempotency_key"], state_text(n), n["status"],
             age(n["age"]), n["provider"], n["account"], n["provider_reference"], n["asked_by"], n["label"]]
            for n in found
        ],
        empty="no intent matches",
        drop=("account", "provider", "asked by", "label", "row", "operation", "step", "age", "tenant", "reference",
              "key"),
    )  # fmt: skip
    if following is not None:
        say(f"more: --before {following}")


def known_status(status: str | None) -> str | None:
    """Check that the status exists. Raises a usage error."""
    from idem.outbox.domain.states import OutboxStatus

    if status is not None and status not in set(OutboxStatus):
        raise typer.BadParameter(
            f"{status!r} is not a status. Use one of {', '.join(OutboxStatus)}", param_hint="--status"
        )
    return status


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
    from idem.outbox.operator import id_prefixes, listing, unmasking

    async def read() -> dict[str, Any]:
        async with opening.connected(config) as connection:
            found = await id_prefixes.intent(connection, intent)
            if unmask:
                await unmasking.note(connection, found, by=who(by))
            return known(await listing.intent(connection, found, params=params, unmask=unmask), found)

    shown = asyncio.run(read())
    if as_data:
        as_json(shown)
    else:
        show_intent(shown)


def known(found: dict[str, Any] | None, intent: UUID) -> dict[str, Any]:
    """The intent, if it was found. Raises OperatorRefused if not."""
    if found is None:
        raise OperatorRefused(f"intent {intent} does not exist in this database: `idem intents list` shows the intents")
    return found


@app.command(
    epilog=examples('idem intents cancel 0193b6a0-0000-7000-8000-000000000000 --reason "ordered twice, ticket 4711"')
)
@grouped
def cancel(intent: Intent, reason: Why, sure: Sure = False, *, options: OperatorOptions) -> None:
    """Cancel an intent that was not executed. Its key then answers 409 `cancelled`."""
    asyncio.run(_cancel(options, intent, reason, sure))


async def _cancel(options: OperatorOptions, prefix: Any, reason: str, sure: bool) -> None:
    from idem.cli.operator.preview import CANCEL, prospects
    from idem.outbox.operator import actions, id_prefixes, listing, locking

    async with opening.deciding(options.config) as (connection, catalogue):
        intent = await id_prefixes.intent(connection, prefix)
        found = known(await listing.intent(connection, intent), intent)
        held = await locking.snapshot(connection, intent)
        for each in prospects(found, held, catalogue, sure=sure):
            if each.command == CANCEL:
                say(f"intent {intent} ({found['operation']}, {found['label'] or 'no label'}): {each.text}")
        if held is not None:
            confirm("Cancel it?", yes=options.yes)
        done = await actions.cancel(
            connection, catalogue, intent, by=options.operator, reason=reason,
            version=held.row.version if held else None, know_it_did_not_happen=sure,
        )  # fmt: skip
    if options.as_data:
        as_json(asdict(done))
    else:
        typer.echo(f"intent {intent} is cancelled")


@app.command(
    epilog=examples('idem intents approve 0193b6a0-0000-7000-8000-000000000000 --reason "checked, ticket 4711"')
)
@grouped
def approve(intent: Intent, reason: Why, *, options: OperatorOptions) -> None:
    """Approve a call that waits for a person. It is queued, and a worker sends it.

    Where its operation wants two persons, it is refused to the one who asked. The database role needs the right:
    `idem db grant ROLE --as operator`.
    """
    from idem.cli.operator import approvals

    asyncio.run(approvals.approve(options, intent, reason))


@app.command(
    epilog=examples(
        'idem intents reject 0193b6a0-0000-7000-8000-000000000000 --reason "not this customer, ticket 4711"'
    )
)
@grouped
def reject(intent: Intent, reason: Why, sure: Sure = False, *, options: OperatorOptions) -> None:
    """Reject a call that waits for a person. It is never sent; its key then answers with the operation's `rejected`."""
    from idem.cli.operator import approvals

    asyncio.run(approvals.reject(options, intent, reason, sure=sure))


@app.command(epilog=examples("idem intents blocked", "idem intents blocked --tenant acme --json"))
def blocked(
    config: Config = None,
    tenant: Annotated[str | None, typer.Option(help="Only ordering keys of this tenant.")] = None,
    limit: Limit = 100,
    as_data: Json = False,
) -> None:
    """List what waits by an ordering key, what it waits for, and since when."""
    from idem.outbox.operator import order

    async def read() -> list[dict[str, Any]]:
        async with opening.connected(config) as connection:
            return await order.blocked(connection, tenant=tenant, limit=limit)

    found = asyncio.run(read())
    if as_data:
        as_json({"blocked": found})
        return
    table(
        ["blocked by", "which is", "for", "waiting", "longest", "ordering key", "group", "tenant", "dead letters"],
        [
            [n["blocked_by"] or "nothing", n["why"] or "about to go on", age(n["blocked_for"]),
             f"{order.COUNTED}+" if n["waiting"] >= order.COUNTED else n["waiting"], age(n["waiting_for"]),
             n["ordering_key"], n["ordering_group"], n["tenant_id"], ", ".join(n["dead_letters"]) or None]
            for n in found
        ],
        empty="nothing waits for its turn, and no ordering key is held",
        drop=("dead letters", "tenant", "group", "longest"),
    )  # fmt: skip


Skip = Annotated[
    bool,
    typer.Option(
        "--skip",
        help="Also where the intent has not ended (unknown, awaiting, held): it leaves the order, and if it comes back "
        "to work, it gets a new place behind the others.",
    ),
]


@app.command(
    epilog=examples(
        'idem intents unblock 0193b6a0-0000-7000-8000-000000000000 --reason "the card was replaced"',
        'idem intents unblock 0193b6a0-0000-7000-8000-000000000000 --skip --reason "bank says tomorrow, ticket 4711"',
    )
)
@grouped
def unblock(intent: Intent, reason: Why, skip: Skip = False, *, options: OperatorOptions) -> None:
    """Let go on what waits for an intent by its ordering key. The intent itself stays as it is."""
    asyncio.run(_unblock(options, intent, reason, skip))


async def _unblock(options: OperatorOptions, prefix: Any, reason: str, skip: bool) -> None:
    from idem.outbox.operator import id_prefixes, listing, order

    async with opening.deciding(options.config) as (connection, _):
        intent = await id_prefixes.intent(connection, prefix)
        found = known(await listing.intent(connection, intent), intent)
        say(f"intent {intent} ({found['operation']}, {found['label'] or 'no label'}): {state_text(found)}")
        place = await order.place(connection, intent)
        if place is None or order.against_unblock(place, skip=skip) is None:
            say("what waits for it by its ordering key goes on; the intent itself stays as it is")
            confirm("Let the others go on?", yes=options.yes)
        done = await order.unblock(connection, intent, by=options.operator, reason=reason, skip=skip)
    if options.as_data:
        as_json(asdict(done))
        return
    following = f"intent {done.promoted[0]} goes on" if done.promoted else "nothing waits for it now"
    typer.echo(f"ordering key {done.ordering_key}: {following}")
