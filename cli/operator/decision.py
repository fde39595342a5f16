"""One decision of an operator: read the case, show what will happen, ask, then act on exactly what was shown."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from idem.cli.base import opening
from idem.cli.base.option_groups import OperatorOptions
from idem.cli.base.options import confirm
from idem.cli.base.output import age, as_json, say, text
from idem.cli.operator import preview as prospect
from idem.cli.operator.preview import Prospect, prospects
from idem.outbox.values.errors import OperatorRefused
from idem.outbox.values.plural import several

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from idem.outbox.domain.catalogue import Catalogue
    from idem.outbox.domain.operation import Answer
    from idem.outbox.domain.outcomes import Refused, Succeeded
    from idem.outbox.operator.confirmation import Confirmed
    from idem.outbox.operator.id_prefixes import Prefix
    from idem.outbox.operator.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class DecisionOptions:
    """What an operator wants to do about a dead letter, and why. `act` is a command of the preview."""

    act: str
    reason: str
    sure: bool = False
    outcome: Succeeded | Refused | None = None
    answer: Answer | None = None
    new_key: bool = False
    unchecked: bool = False
    confirmed: Confirmed | None = None


@dataclass(frozen=True, slots=True)
class DecisionCase:
    """A dead letter with its intent and event, read at one moment. The action applies to this version only."""

    letter: dict[str, Any]
    intent: dict[str, Any] | None
    held: Snapshot | None
    event: dict[str, Any] | None = None


async def read(
    connection: AsyncConnection[Any], letter_id: Prefix | UUID, *, params: bool = False, unmask: str | None = None
) -> DecisionCase:
    """Read a dead letter with its intent and event; `unmask`: who sees masked values. Raises OperatorRefused."""
    from idem.outbox.operator import id_prefixes, listing, locking, unmasking

    letter_id = await id_prefixes.dead_letter(connection, letter_id)
    letter = await listing.dead_letter(connection, letter_id)
    if letter is None:
        raise OperatorRefused(
            f"there is no dead letter {letter_id} in this database: `idem dlq list` shows the open ones"
        )
    about = letter["webhook_event_id"]
    event = None if about is None else await listing.event(connection, about)
    if letter["intent_id"] is None:
        return DecisionCase(letter, None, None, event)
    if unmask is not None:
        await unmasking.note(connection, letter["intent_id"], by=unmask)
    intent = await listing.intent(connection, letter["intent_id"], params=params, unmask=unmask is not None)
    return DecisionCase(letter, intent, await locking.snapshot(connection, letter["intent_id"]), event)


def prospects_of(case: DecisionCase, catalogue: Catalogue | None, *, sure: bool = False) -> list[Prospect]:
    """The possible actions for a case; `catalogue` is None if the configuration cannot be used."""
    open_letter = case.letter if case.letter["resolved_at"] is None else None
    if case.intent is None and open_letter is None:
        return []
    return prospects(case.intent, case.held, catalogue, open_letter, sure=sure)


async def resolve(given: OperatorOptions, letter: Prefix | UUID, options: DecisionOptions) -> None:
    """Show what the action would do, ask, and do it. Raises OperatorRefused."""
    async with opening.deciding(given.config) as (connection, catalogue):
        case = await read(connection, letter)
        _preview(case, options, catalogue)
        if options.outcome is not None and case.held is not None:
            options = await _confirmed(connection, catalogue, case, options)
        confirm("Do it?", yes=given.yes)
        done = await _do(connection, catalogue, case, options, given.operator)
    if given.as_data:
        as_json({"dead_letter": case.letter["id"], "intent": case.letter["intent_id"], **done})
    else:
        more = ", ".join(f"{k} {v}" for k, v in done.items() if k != "action" and v)
        typer.echo(f"{done['action']}: {more}" if more else done["action"])


def _preview(case: DecisionCase, options: DecisionOptions, catalogue: Catalogue) -> None:
    letter, intent = case.letter, case.intent
    if letter["resolved_at"] is not None and options.act != prospect.REDRIVE:
        how = f"{letter['resolution']}, by {letter['resolved_by']}"
        raise OperatorRefused(f"dead letter {letter['id']} is already resolved: {how}")
    times = "once" if letter["seen"] == 1 else f"{letter['seen']} times"
    say(f"dead letter {letter['id']}: {letter['reason']}, {age(letter['age'])} old, seen {times}")
    if intent is not None:
        row = f", row {case.held.row.status}, attempts {case.held.row.attempt}" if case.held else ""
        say(
            f"intent {intent['id']}: {intent['operation']}, {intent['label'] or 'no label'}, {intent['state']}{row}, "
            f"version {intent['version']}"
        )
    found = {each.command: each for each in prospects_of(case, catalogue, sure=options.sure)}
    chosen = found.get(prospect.NEW_KEY if options.new_key and intent is not None else options.act)
    if chosen is None or not chosen.possible:
        possible = ", ".join(name for name, each in found.items() if each.possible)
        about = f"of a {intent['state']} intent" if intent is not None else "without an intent"
        impossible = f"this action does not apply to a dead letter `{letter['reason']}` {about}"
        raise OperatorRefused(f"{impossible if chosen is None else chosen.text}. Possible now: {possible or 'nothing'}")
    say(f"{chosen.command}: {chosen.text}")
    if options.answer is not None:
        say(f"the stored answer will be {options.answer.status}, {several(len(options.answer.body), 'byte')}")
    so_far, given = (case.held and case.held.row.reference), (options.outcome and options.outcome.reference)
    if so_far is not None and given is not None and so_far != given:
        say(
            f"WARNING: the recorded provider reference is {so_far}, yours is {given}. Both may exist; this opens a "
            "dead letter `possible_duplicate`"
        )


async def _confirmed(
    connection: AsyncConnection[Any], catalogue: Catalogue, case: DecisionCase, options: DecisionOptions
) -> DecisionOptions:
    """Ask the provider and show its answer; returns the action with the confirmed outcome. Raises OperatorRefused."""
    from idem.outbox.domain.outcomes import name
    from idem.outbox.operator import confirmation

    assert options.outcome is not None and case.intent is not None and case.held is not None
    reference, intent = options.outcome.reference, case.intent["id"]
    confirmed = await confirmation.ask(connection, catalogue, intent, reference)
    found = confirmed.object
    if found is not None:
        say(f"the provider says: {name(found)}, reference {text(found.reference)}, status {text(found.status)}")
        for field, value in found.fields.items():
            say(f"  {text(field)}: {text(value)}")
    else:
        say(f"the provider says: {text(confirmation.said(confirmed))}")
    operation = catalogue.cautious_of(case.held.row).operation
    other = await confirmation.of_another(connection, intent, reference)
    if options.unchecked:
        doubt = confirmation.against(confirmed, options.outcome, operation, other)
        say(f"WARNING: UNCHECKED: {doubt or 'you skip the check'}. idem stores your statement permanently")
    outcome = confirmation.outcome_to_record(
        confirmed, options.outcome, operation, unchecked=options.unchecked, other=other
    )
    return replace(options, outcome=outcome, confirmed=confirmed)


async def _do(
    connection: AsyncConnection[Any], catalogue: Catalogue, case: DecisionCase, options: DecisionOptions, by: str
) -> dict[str, Any]:
    from idem.outbox.domain.states import Reason
    from idem.outbox.operator import actions, dead_letters
    from idem.outbox.settle.answer_rendering import Renderer

    letter_id, seen = case.letter["id"], case.letter["seen"]
    words: dict[str, Any] = {"by": by, "reason": options.reason}
    if case.letter["reason"] == Reason.HANDLER_FAILED:
        again = options.act == prospect.REDRIVE
        act = dead_letters.run_again if again else dead_letters.skip_event
        await act(connection, letter_id, seen=seen, **words)
        about = case.letter["details"]
        return {
            "action": "handler_redriven" if again else "handler_skipped",
            "handler": about["handler"], "event": f"{about['intent']} number {about['number']}",
        }  # fmt: skip
    if case.intent is None and options.act == prospect.REDRIVE:
        await dead_letters.try_event_again(connection, letter_id, seen=seen, **words)
        return {"action": "tried_again", "event": case.letter["details"].get("event")}
    if case.intent is None or options.act == prospect.DISCARD:
        await dead_letters.discard(connection, letter_id, seen=seen, **words)
        return {"action": "discarded"}
    intent, words["version"] = case.intent["id"], case.intent["version"]
    match options.act:
        case prospect.COMPLETED:
            assert options.outcome is not None
            words |= {"answer": options.answer, "letter": letter_id, "confirmed": options.confirmed}
            done = await actions.resolve_completed(connection, catalogue, Renderer(), intent, options.outcome, **words)
        case prospect.FAILED:
            done = await actions.resolve_failed(
                connection, catalogue, intent, know_it_did_not_happen=options.sure, letter=letter_id, **words
            )
        case prospect.UNDONE:
            done = await actions.undo(connection, catalogue, intent, **words)
        case prospect.REDRIVE:
            words |= {"know_it_did_not_happen": options.sure, "new_provider_key": options.new_key}
            done = await actions.redrive(connection, catalogue, intent, **words)
        case _:
            await dead_letters.close_dead_letter(connection, letter_id, seen=seen, **words)
            return {"action": "closed", "state": case.intent["state"]}
    written = asdict(done)
    return {name: written[name] for name in ("action", "state", "status")}


def final(outcome: str, reference: str | None, status: str | None, named: list[str]) -> Succeeded | Refused:
    """The outcome from the options. Raises a usage error."""
    from idem.outbox.domain.outcomes import Refused, Succeeded

    values: dict[str, Any] = {}
    for each in named:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{each!r}: write name=value", param_hint="--field")
        values[name] = value
        with suppress(ValueError):  # not JSON: keep the text
            values[name] = json.loads(value)
    if outcome == "succeeded":
        if not reference:
            raise typer.BadParameter(
                "required with --as completed: the provider's reference of the object", param_hint="--reference"
            )
        return Succeeded(reference, status, values)
    return Refused(reference, status, values)


def answer(file: Path | None, status: int | None, outcome: str) -> Answer | None:
    """The answer from the options. Raises a usage error."""
    from idem.outbox.domain.operation import Answer, check_answer

    if file is None:
        if status is not None:
            raise typer.BadParameter("it goes with --answer", param_hint="--answer-status")
        return None
    body = file.read_bytes()
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        raise typer.BadParameter(f"{file} is not JSON, or is nested too deeply", param_hint="--answer") from None
    given = Answer(status if status is not None else 201 if outcome == "succeeded" else 402, body)
    try:
        check_answer(given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--answer-status") from None
    return given
