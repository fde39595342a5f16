"""`idem dlq`: what idem could not settle by itself, for a person to decide, with a reason on record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from idem.cli import known, opening
from idem.cli.application import App
from idem.cli.options import (
    Account,
    By,
    Config,
    Id,
    Json,
    Label,
    Limit,
    Params,
    Provider,
    Reference,
    Since,
    Sure,
    Unmask,
    Until,
    Why,
    Yes,
    an_id,
    examples,
    moment,
    who,
)
from idem.cli.output import age, as_json, fields, say, table

app = typer.Typer(
    no_args_is_help=True,
    help="Dead letters: what idem could not settle by itself.",
    epilog=examples("idem dlq list", "idem dlq show 0193b6a0-0000-7000-8000-000000000000"),
)

ID = "0193b6a0-0000-7000-8000-000000000000"

Letter = Annotated[
    Id, typer.Argument(parser=an_id, metavar="ID", help="The dead letter's id, or its beginning.", show_default=False)
]
ReasonCode = Annotated[str | None, typer.Option("--reason-code", help="Only with this reason, as too_late.")]


@app.command("list", epilog=examples("idem dlq list", "idem dlq list --provider bank --since 2h --json"))
def list_(
    config: Config = None,
    reason_code: ReasonCode = None,
    provider: Provider = None,
    account: Account = None,
    label: Label = None,
    reference: Reference = None,
    since: Since = None,
    until: Until = None,
    all_: Annotated[bool, typer.Option("--all", help="Resolved ones too.")] = False,
    after: Annotated[
        Id | None,
        typer.Option(parser=an_id, metavar="ID", help="Only after this entry: the last one of the page before."),
    ] = None,
    limit: Limit = 100,
    as_data: Json = False,
) -> None:
    """List dead letters, oldest first. `next` in the JSON is the --after of the next page."""
    filters = {"reason": checked(reason_code), "provider": provider, "account": account, "label": label,
               "reference": reference, "resolved": all_, "limit": limit}  # fmt: skip
    found = asyncio.run(_list(config, since, until, after, filters))
    following = found[-1]["id"] if len(found) == limit else None
    if as_data:
        as_json({"dead_letters": found, "next": following})
        return
    table(
        ["dead letter", "reason", "age", "seen", "provider", "account", "operation", "state", "intent", "resolved as"],
        [[d["id"], d["reason"], age(d["age"]), d["seen"], d["provider"], d["account"], d["operation"], d["state"],
          d["intent_id"], d["resolution"]] for d in found],
        empty="no dead letter matches" if all_ else "no open dead letter matches",
        drop=("seen", "operation", "account", "state", "resolved as", "provider", "intent", "age"),
    )  # fmt: skip
    if following is not None:
        say(f"more: --after {following}")


async def _list(
    config: Path | None, since: str | None, until: str | None, after: Any, filters: dict[str, Any]
) -> list[dict[str, Any]]:
    from idem.outbox.operator import id_prefixes, listing

    start, end = moment(since), moment(until, "--until")
    async with opening.connected(config) as connection:
        last = None if after is None else await id_prefixes.dead_letter(connection, after)
        times = await opening.times(connection, start, end)
        found = await listing.dead_letters(connection, after=last, **times, **filters)
        if not found:
            await known.note(config, connection, provider=filters["provider"], account=filters["account"])
        return found


def checked(reason_code: str | None) -> str | None:
    """A reason that exists. Raises a usage error."""
    from idem.outbox.domain.states import Reason

    if reason_code is not None and reason_code not in set(Reason):
        raise typer.BadParameter(f"{reason_code!r} is none of {', '.join(Reason)}", param_hint="--reason-code")
    return reason_code


@app.command(epilog=examples(f"idem dlq show {ID}", f"idem dlq show {ID} --json"))
def show(
    letter: Letter,
    config: Config = None,
    app: App = None,
    params: Params = False,
    unmask: Unmask = False,
    by: By = None,
    as_data: Json = False,
) -> None:
    """Show everything that is known about a dead letter, and what each possible resolution would do."""
    from idem.cli.checked import show_discrepancy
    from idem.cli.deciding import prospects_of, read
    from idem.cli.timeline import show_event, show_intent, show_prospects

    async def run() -> tuple[Any, Any]:
        async with opening.connected(config) as connection:
            case = await read(connection, letter, params=params, unmask=who(by) if unmask else None)
            return case, prospects_of(case, opening.catalogue_to_look(config))

    case, possible = asyncio.run(run())
    if as_data:
        actions = [{"command": p.command, "possible": p.possible, "text": p.text} for p in possible]
        as_json({"dead_letter": case.letter, "intent": case.intent, "event": case.event, "actions": actions})
        return
    names = ("id", "reason", "seen", "created_at", "subject", "webhook_event_id", "details", "resolution", "note")
    checked_by_ledger = case.letter["reason"] == "discrepancy" and "next" in case.letter["details"]
    shown = [name for name in names if name != "details" or not checked_by_ledger]
    fields([(name.replace("_", " "), case.letter[name]) for name in shown])
    if checked_by_ledger:
        show_discrepancy(case.letter["details"])
    if case.event is not None:
        typer.echo()
        show_event(case.event)
    if case.intent is not None:
        typer.echo()
        show_intent(case.intent)
    show_prospects(possible)


@app.command(
    epilog=examples(
        f'idem dlq resolve {ID} --as completed --reference ch_123 --reason "seen in the bank\'s portal, ticket 4711"',
        f'idem dlq resolve {ID} --as completed --outcome refused --reason "the bank declined it by telephone"',
        f'idem dlq resolve {ID} --as failed_retryable --reason "the bank confirms that it has nothing"',
        f'idem dlq resolve {ID} --as closed --reason "refunded by hand"',
    )
)
def resolve(
    letter: Letter,
    as_: Annotated[
        Literal["completed", "failed_retryable", "closed"],
        typer.Option(
            "--as",
            help="completed: it ended at the provider. failed_retryable: it did not happen. closed: only this entry "
            "(conflict, possible_duplicate, discrepancy, handler_failed: an event that a handler could not be told is "
            "skipped).",
            show_default=False,
        ),
    ],
    reason: Why,
    config: Config = None,
    app: App = None,
    reference: Annotated[str | None, typer.Option(help="The provider's own reference of it, as ch_123.")] = None,
    outcome: Annotated[
        Literal["succeeded", "refused"], typer.Option(help="With --as completed: how it ended at the provider.")
    ] = "succeeded",
    provider_status: Annotated[str | None, typer.Option(help="The provider's own word for its status.")] = None,
    field: Annotated[
        list[str] | None, typer.Option(help="A named value of the provider's, name=JSON, for the operation's answer.")
    ] = None,
    answer: Annotated[
        Path | None, typer.Option(help="A file with the body of the answer; default: the operation renders it.")
    ] = None,
    answer_status: Annotated[
        int | None, typer.Option(min=200, max=499, help="The status of that answer; default 201, refused 402.")
    ] = None,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="With --as completed: record your word where the provider cannot be asked, or says something else.",
        ),
    ] = False,
    know_it_did_not_happen: Sure = False,
    by: By = None,
    yes: Yes = False,
    as_data: Json = False,
) -> None:
    """Decide what became of a dead letter's intent. Shows what will happen first, then asks.

    With --as completed the provider is asked first, under the reference: its own object is shown, and the answer is
    rendered from it. Where it has nothing, says otherwise or cannot be asked, nothing is recorded but with --unchecked.
    """
    from idem.cli import deciding

    wish = deciding.Wish(as_, reason, who(by), know_it_did_not_happen)
    if as_ == "completed":
        final = deciding.final(outcome, reference, provider_status, field or [])
        given = deciding.answer(answer, answer_status, outcome)
        wish = deciding.Wish(as_, reason, who(by), False, final, given, unchecked=unchecked)
    elif unchecked:
        raise typer.BadParameter("it goes with --as completed", param_hint="--unchecked")
    asyncio.run(deciding.resolve(config, letter, wish, yes=yes, as_data=as_data))


@app.command(
    epilog=examples(
        f'idem dlq redrive {ID} --reason "the bank has unlocked our account"',
        f'idem dlq redrive {ID} --new-provider-key --reason "our template named the wrong field, it is mended"',
        'idem dlq redrive --provider bank --reason-code too_late --since 1d --expect 12 --reason "the outage is over"',
    )
)
def redrive(
    letter: Annotated[
        Id | None,
        typer.Argument(
            parser=an_id, metavar="ID", help="The dead letter's id, or its beginning; none for many at once."
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why: kept in the evidence. Required.")] = None,
    config: Config = None,
    app: App = None,
    provider: Provider = None,
    reason_code: ReasonCode = None,
    since: Since = None,
    expect: Annotated[
        int | None, typer.Option(min=0, help="Many at once: how many intents you expect, so that nobody is surprised.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.01, help="Many at once: how many a second become due.")] = 10.0,
    new_provider_key: Annotated[
        bool,
        typer.Option(
            "--new-provider-key",
            help="Render the request anew, from the same params, and send it under a new key: where our own template "
            "was wrong, or the provider keeps a failure under the old key for ever.",
        ),
    ] = False,
    know_it_did_not_happen: Sure = False,
    by: By = None,
    yes: Yes = False,
    as_data: Json = False,
) -> None:
    """Put intents back to work under the same provider key: one, or all of a provider or reason.

    A dead letter `handler_failed` of a handler of settled intents: the handler runs again, nothing is sent.
    A dead letter `unmatched_webhook`: the event is tried again, by the contract as it is now.
    The frozen bytes are sent again. Were the client's params wrong, cancel, and let the client send a new key.
    Many at once never touches an unknown intent or one with a live call; each that is left out is told, with why.
    """
    if reason is None or not reason.strip():
        raise typer.BadParameter("say why: it is kept in the evidence", param_hint="--reason")
    chosen = (provider, checked(reason_code), moment(since))
    if letter is not None:
        if any(each is not None for each in (*chosen, expect)):
            raise typer.BadParameter("give one dead letter or a selection, not both")
        from idem.cli import deciding

        wish = deciding.Wish("redrive", reason, who(by), know_it_did_not_happen, new_key=new_provider_key)
        asyncio.run(deciding.resolve(config, letter, wish, yes=yes, as_data=as_data))
        return
    if all(each is None for each in chosen):
        raise typer.BadParameter("name a dead letter, or select with --provider, --reason-code or --since")
    if new_provider_key:
        raise typer.BadParameter("a new provider key is given one by one", param_hint="--new-provider-key")
    if know_it_did_not_happen:
        raise typer.BadParameter("nobody knows that of many at once: redrive unknown intents one by one")
    from idem.cli import bulk

    asyncio.run(
        bulk.redrive(
            config, bulk.Selection(*chosen), by=who(by), reason=reason, expect=expect, rate=rate, yes=yes,
            as_data=as_data,
        )
    )  # fmt: skip


@app.command(epilog=examples(f'idem dlq discard {ID} --reason "a test event of the bank\'s"'))
def discard(
    letter: Letter,
    reason: Why,
    config: Config = None,
    app: App = None,
    by: By = None,
    yes: Yes = False,
    as_data: Json = False,
) -> None:
    """Close an entry that is about no intent (an unmatched webhook, a discrepancy). An intent is never discarded."""
    from idem.cli import deciding

    asyncio.run(deciding.resolve(config, letter, deciding.Wish("discard", reason, who(by)), yes=yes, as_data=as_data))
