"""`idem pause` and `idem resume`: stop calls to one provider, or new intents for it, and let them continue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idem.cli.base import opening
from idem.cli.base.application import App
from idem.cli.base.option_groups import grouped
from idem.cli.base.options import ByOption, Config, Json, Why, examples, who
from idem.cli.base.output import as_json, say
from idem.cli.operator import names

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from idem.outbox.operator.pause import What

PAUSE_EXAMPLES = examples(
    'idem pause bank --reason "their maintenance, ticket 4711"',
    'idem pause bank --account eu --what calls --reason "wrong credentials"',
    'idem pause bank --what calls,lookups,accept --reason "contract ends"',
)
RESUME_EXAMPLES = examples(
    'idem resume bank --reason "maintenance is over"', 'idem resume bank --what accept --reason "queue is short again"'
)

ITS = "calls (first sends, replays, cancels), lookups (look-ups), accept (new intents), separated by commas"


@dataclass(frozen=True, kw_only=True)
class PauseOptions:
    """What both commands take: which lanes, who, and why. Raises a usage error for an empty account."""

    provider: Annotated[str, typer.Argument(help="The provider's name in the configuration.", show_default=False)]
    reason: Why
    config: Config = None
    app: App = None
    account: Annotated[
        str | None,
        typer.Option("--account", metavar="NAME", help="Only this account; default all accounts of the provider."),
    ] = None
    by: ByOption = None
    as_data: Json = False

    def __post_init__(self) -> None:
        # An empty variable in a script must not select all accounts.
        if self.account == "":
            raise typer.BadParameter(
                "it is empty. Name an account, or leave the option out for all accounts", param_hint="--account"
            )

    @property
    def lanes(self) -> str:
        from idem.outbox.operator.pause import EVERY_ACCOUNT

        return self.account or EVERY_ACCOUNT

    def writing(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        return opening.writing(self.config, opening.environment(self.config)[0])


@grouped
def pause(
    options: PauseOptions,
    what: Annotated[str, typer.Option("--what", metavar="LIST", help=f"What to pause: {ITS}.")] = "calls,lookups",
) -> None:
    """Stop calling a provider until `idem resume PROVIDER --reason "..."`; a pause survives restarts. Running calls
    continue. Queued rows wait and lose only time: replay windows and `start_within` keep running. idem still accepts
    intents, unless --what names accept: then new requests get 503 `paused`, and retries of known keys get their answer
    as usual.
    """
    asyncio.run(_pause(options, _chosen(what)))


@grouped
def resume(
    options: PauseOptions,
    what: Annotated[
        str, typer.Option("--what", metavar="LIST", help=f"What to resume: {ITS}.")
    ] = "calls,lookups,accept",
) -> None:
    """End a pause. Workers wake at once and send what waited, at the pace of the lane's limits."""
    asyncio.run(_resume(options, _chosen(what)))


def _chosen(what: str) -> list[What]:
    from idem.outbox.operator.pause import EVERYTHING

    named = {each.strip() for each in what.split(",") if each.strip()}
    if unknown := sorted(named - set(EVERYTHING)):
        raise typer.BadParameter(f"{unknown[0]!r} cannot be paused. Use {', '.join(EVERYTHING)}", param_hint="--what")
    if not named:
        raise typer.BadParameter(f"it is empty. Use {', '.join(EVERYTHING)}", param_hint="--what")
    return [each for each in EVERYTHING if each in named]


async def _pause(options: PauseOptions, what: list[What]) -> None:
    from idem.outbox.operator import pause as pausing

    provider, account, by = options.provider, options.account, who(options.by)
    async with options.writing() as connection:
        await names.require(options.config, connection, provider, account)
        fresh = await pausing.pause(connection, provider, options.lanes, what, by=by, reason=options.reason)
        lanes = await pausing.lanes(connection, provider)
    if options.as_data:
        as_json({"provider": provider, "account": account, "changed": fresh, "lanes": lanes})
        return
    lane = f"provider {provider}, {f'account {account}' if account else 'all accounts'}"
    if not fresh:
        say(f"{lane}: {_are(what)} already paused, nothing was changed. `idem status` shows who paused it")
        return
    of = f"{provider}{f' --account {account}' if account else ''}"
    say(f'{lane}: {_are(fresh)} now paused until `idem resume {of} --reason "..."`')
    if "accept" not in what:
        say("idem still accepts new intents, and they wait; --what accept refuses them")


async def _resume(options: PauseOptions, what: list[What]) -> None:
    from idem.outbox.operator import pause as pausing

    provider, account, by = options.provider, options.account, who(options.by)
    async with options.writing() as connection:
        done = await pausing.resume(connection, provider, options.lanes, what, by=by, reason=options.reason)
        lanes = await pausing.lanes(connection, provider)
        if not done and not lanes:
            # The name may be misspelt, but a provider that the configuration no longer has can still be resumed.
            await names.require(options.config, connection, provider, account)
    if options.as_data:
        changed = [{"account": name or None, "what": ended} for name, ended in sorted(done.items())]
        as_json({"provider": provider, "account": account, "changed": changed, "lanes": lanes})
        return
    for name, ended in sorted(done.items()):
        say(f"provider {provider}, {f'account {name}' if name else 'all accounts'}: {_are(ended)} resumed")
    if not done:
        say(f"nothing was paused for provider {provider}{f', account {account}' if account else ''}")
    for lane in lanes:
        of = f"account {lane['account']}" if lane["account"] else "all accounts"
        why = f"by {lane['paused_by'] or '-'} ({lane['reason'] or '-'})"
        say(f"still paused, {of}: {pausing.named(lane['what'])}, {why}")


def _are(what: Sequence[What]) -> str:
    from idem.outbox.operator.pause import named

    return f"{named(what)} {'is' if list(what) == ['accept'] else 'are'}"
