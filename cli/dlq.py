"""`idem dlq`: show and decide dead letters, each decision with a reason on record."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from idem.cli.base import opening
from idem.cli.base.application import App
from idem.cli.base.option_groups import ListFilters, OperatorOptions, grouped
from idem.cli.base.options import (
    ByOption,
    Config,
    Id,
    Json,
    Limit,
    Params,
    ProviderOption,
    SinceOption,
    Sure,
    Unmask,
    Why,
    examples,
    group,
    id_argument,
    id_option,
    moment,
    who,
)
from idem.cli.base.output import age, as_json, fields, say, table
from idem.cli.operator import lists

app = group(
    "Dead letters: what idem could not settle by itself.",
    "idem dlq list",
    "idem dlq show 0193b6a0-0000-7000-8000-000000000000",
)

ID = "0193b6a0-0000-7000-8000-000000000000"

Letter = Annotated[Id, id_argument("The dead letter's id, or its beginning.")]
ReasonCode = Annotated[str | None, typer.Option("--reason-code", help="Only entries with this reason, e.g. too_late.")]


@app.command("list", epilog=examples("idem dlq list", "idem dlq list --provider bank --since 2h --json"))
@grouped
def list_(
    filters: ListFilters,
    config: Config = None,
    reason_code: ReasonCode = None,
    all_: Annotated[bool, typer.Option("--all", help="Include resolved entries.")] = False,
    after: Annotated[Id | None, id_option("Only entries after this one: the last of the previous page.")] = None,
    limit: Limit = 100,
    as_data: Json = False,
) -> None:
    """List dead letters, oldest first. In the JSON, `next` is the --after of the next page."""
    from idem.outbox.operator import id_prefixes, listing

    found = lists.read(
        config, filters, listing.dead_letters, page=("after", after, id_prefixes.dead_letter),
        reason=checked(reason_code), resolved=all_, limit=limit,
    )  # fmt: skip
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


def checked(reason_code: str | None) -> str | None:
    """Check that the reason exists. Raises a usage error."""
    from idem.outbox.domain.states import Reason

    if reason_code is not None and reason_code not in set(Reason):
        raise typer.BadParameter(
            f"{reason_code!r} is not a reason. Use one of {', '.join(Reason)}", param_hint="--reason-code"
        )
    return reason_code


@app.command(epilog=examples(f"idem dlq show {ID}", f"idem dlq show {ID} --json"))
def show(
    letter: Letter,
    config: Config = None,
    app: App = None,
    params: Params = False,
    unmask: Unmask = False,
    by: ByOption = None,
    as_data: Json = False,
) -> None:
    """Show a dead letter with everything that idem knows about it, and what each resolution would do."""
    from idem.cli.operator.decision import prospects_of, read
    from idem.cli.operator.ledger_report import show_discrepancy
    from idem.cli.operator.timeline import show_event, show_intent, show_prospects

    async def run() -> tuple[Any, Any]:
        async with opening.connected(config) as connection:
            case = await read(connection, letter, params=params, unmask=who(by) if unmask else None)
            return case, prospects_of(case, opening.readable_catalogue(config))

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
        f'idem dlq resolve {ID} --as undone --reason "the shop has nothing left to send"',
        f'idem dlq resolve {ID} --as closed --reason "refunded by hand"',
    )
)
@grouped
def resolve(
    letter: Letter,
    as_: Annotated[
        Literal["completed", "failed_retryable", "undone", "closed"],
        typer.Option(
            "--as",
            help="completed: it ended at the provider. failed_retryable: it did not happen. undone: what a "
            "flow has done is undone, and its open step is not made. closed: close only this entry ("
            "conflict, possible_duplicate, discrepancy, answer_failed; event_failed: idem gives the event up; "
            "handler_failed: the handler skips the event).",
            show_default=False,
        ),
    ],
    reason: Why,
    reference: Annotated[str | None, typer.Option(help="The provider's reference of the object, e.g. ch_123.")] = None,
    outcome: Annotated[
        Literal["succeeded", "refused"], typer.Option(help="With --as completed: how it ended at the provider.")
    ] = "succeeded",
    provider_status: Annotated[str | None, typer.Option(help="The status in the provider's own words.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="A value from the provider for the operation's answer, name=JSON. Repeatable."),
    ] = None,
    answer: Annotated[
        Path | None, typer.Option(help="A file with the body of the answer; by default the operation renders it.")
    ] = None,
    answer_status: Annotated[
        int | None,
        typer.Option(min=200, max=499, help="The HTTP status of that answer; default 201, or 402 if refused."),
    ] = None,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="With --as completed: record your statement even if idem cannot ask the provider, or the provider "
            "contradicts it.",
        ),
    ] = False,
    know_it_did_not_happen: Sure = False,
    *,
    options: OperatorOptions,
) -> None:
    """Record the outcome of a dead letter's intent. Shows what will happen and asks first.

    With --as completed idem first asks the provider for the reference, shows its object and renders the answer from
    it. If the provider has no such object, contradicts you or cannot be asked, idem records nothing unless you give
    --unchecked.
    """
    from idem.cli.operator import decision

    wanted = decision.DecisionOptions(f"resolve --as {as_}", reason, know_it_did_not_happen)
    if as_ == "completed":
        final = decision.final(outcome, reference, provider_status, field or [])
        given = decision.answer(answer, answer_status, outcome)
        wanted = decision.DecisionOptions(f"resolve --as {as_}", reason, False, final, given, unchecked=unchecked)
    elif unchecked:
        raise typer.BadParameter("it goes with --as completed", param_hint="--unchecked")
    asyncio.run(decision.resolve(options, letter, wanted))


@app.command(
    epilog=examples(
        f'idem dlq redrive {ID} --reason "the bank has unlocked our account"',
        f'idem dlq redrive {ID} --new-provider-key --reason "our template named the wrong field; it is fixed"',
        'idem dlq redrive --provider bank --reason-code too_late --since 1d --expect 12 --reason "the outage is over"',
    )
)
@grouped
def redrive(
    letter: Annotated[
        Id | None, id_argument("The dead letter's id, or its beginning; leave it out for a bulk redrive.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why: kept in the evidence. Required.")] = None,
    provider: ProviderOption = None,
    reason_code: ReasonCode = None,
    since: SinceOption = None,
    expect: Annotated[
        int | None,
        typer.Option(min=0, help="Bulk: how many entries you expect to match; refused if the count differs."),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.01, help="Bulk: how many become due per second.")] = 10.0,
    new_provider_key: Annotated[
        bool,
        typer.Option(
            "--new-provider-key",
            help="Render the request again from the same params and send it under a new key. Use it if your template "
            "was wrong, or if the provider keeps the failure under the old key.",
        ),
    ] = False,
    know_it_did_not_happen: Sure = False,
    *,
    options: OperatorOptions,
) -> None:
    """Retry intents under the same provider key: one intent, or all of a provider or reason.

    For a dead letter `handler_failed` the handler runs again and idem sends nothing. For a dead letter
    `unmatched_webhook` idem matches the event again, by the current contract. idem sends the frozen bytes again. If
    the client's params were wrong, cancel, and have the client send a new key. A bulk redrive skips intents that are
    unknown or have a call in flight, and lists each with the reason.
    """
    if reason is None or not reason.strip():
        raise typer.BadParameter("required: the evidence records the reason", param_hint="--reason")
    chosen = (provider, checked(reason_code), moment(since))
    if letter is not None:
        if any(each is not None for each in (*chosen, expect)):
            raise typer.BadParameter("name one dead letter or give a selection, not both")
        from idem.cli.operator import decision
        from idem.cli.operator.preview import REDRIVE

        wanted = decision.DecisionOptions(REDRIVE, reason, know_it_did_not_happen, new_key=new_provider_key)
        asyncio.run(decision.resolve(options, letter, wanted))
        return
    if all(each is None for each in chosen):
        raise typer.BadParameter("name a dead letter, or select entries with --provider, --reason-code or --since")
    if new_provider_key:
        raise typer.BadParameter("not possible in bulk: name one dead letter", param_hint="--new-provider-key")
    if know_it_did_not_happen:
        raise typer.BadParameter("not possible in bulk: redrive unknown intents one by one")
    from idem.cli.operator import bulk

    asyncio.run(bulk.redrive(options, bulk.Selection(*chosen), reason=reason, expect=expect, rate=rate))


@app.command(epilog=examples(f'idem dlq discard {ID} --reason "a test event of the bank\'s"'))
@grouped
def discard(letter: Letter, reason: Why, *, options: OperatorOptions) -> None:
    """Close an entry that belongs to no intent (an unmatched webhook, a discrepancy). idem never discards an intent."""
    from idem.cli.operator import decision
    from idem.cli.operator.preview import DISCARD

    asyncio.run(decision.resolve(options, letter, decision.DecisionOptions(DISCARD, reason)))
