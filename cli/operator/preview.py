"""The preview of `idem dlq`: what each action would do now, or why it is not possible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import UNAPPROVED
from idem.outbox.domain.states import KeyState, OutboxStatus, Reason
from idem.outbox.operator import dead_letters, guards, locking

if TYPE_CHECKING:
    from idem.outbox.domain.terms import Terms
    from idem.outbox.operator.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Prospect:
    """One command: whether it is possible now, and what it would do, or why it is not possible."""

    command: str
    possible: bool
    text: str


COMPLETED = "resolve --as completed"
FAILED = "resolve --as failed_retryable"
CLOSED = "resolve --as closed"
REDRIVE = "redrive"
NEW_KEY = "redrive --new-provider-key"
CANCEL = "cancel"
UNDONE = "resolve --as undone"
DISCARD = "discard"


def prospects(
    intent: dict[str, Any] | None,
    held: Snapshot | None,
    catalogue: Catalogue | None,
    letter: dict[str, Any] | None = None,
    *,
    sure: bool = False,
) -> list[Prospect]:
    """The possible actions for an intent and for a dead letter in their current state.

    `catalogue` is None if the configuration cannot be used; then no operation is known.
    """
    found: list[Prospect] = []
    if letter is not None and letter["reason"] == Reason.HANDLER_FAILED:
        about = letter["details"]
        event = f"event {about['number']} ({about['event']}) of intent {about['intent']}"
        return [
            Prospect(
                REDRIVE, True,
                f"runs handler {about['handler']} again for {event}, then for that intent's later events",
            ),
            Prospect(
                CLOSED, True,
                f"skips {event} for handler {about['handler']}, which never gets it; later events continue",
            ),
        ]  # fmt: skip
    if intent is None:
        found = [Prospect(DISCARD, True, "closes this entry, which belongs to no intent; nothing else changes")]
        if letter is not None and letter["reason"] == Reason.UNMATCHED_WEBHOOK:
            again = "the reconciler immediately looks for the call of this event; a match closes this entry"
            found.insert(0, Prospect(REDRIVE, True, again))
        return found
    if held is not None:
        found += _of_row(intent, held, catalogue, sure=sure)
    elif letter is None or letter["reason"] not in dead_letters.CLOSED_ALONE:
        found.append(Prospect(COMPLETED, False, locking.why_ended(KeyState(intent["state"]))))
    if letter is not None and letter["reason"] in dead_letters.CLOSED_ALONE:
        why = dead_letters.against_closing(Reason(letter["reason"]), KeyState(intent["state"]))
        found.append(_prospect(CLOSED, why, _closing(Reason(letter["reason"]), held)))
    return found


def _closing(reason: Reason, held: Snapshot | None) -> str:
    text = "closes this entry and records your reason; the intent does not change"
    if reason is Reason.CONFLICT and held is not None and held.row.status is OutboxStatus.AWAITING:
        text += (
            f", so the reconciler keeps asking, and the next contradiction opens another entry. To end it: {COMPLETED}"
        )
    return text


def _of_row(intent: dict[str, Any], held: Snapshot, catalogue: Catalogue | None, *, sure: bool) -> list[Prospect]:
    row = held.row
    terms = (catalogue or Catalogue("", {}, {})).cautious_of(row)
    reference = f" (the provider knows it as {row.reference})" if row.reference else ""
    undoing = [] if row.plan is None else [_prospect(UNDONE, guards.against_undo(held), _undoing(held))]
    return [
        *undoing,
        _prospect(
            COMPLETED,
            guards.against_completed(held),
            f"{_completing(held)}. Needs --reference{reference}",
        ),
        _prospect(
            FAILED,
            guards.against_failed(held, terms, sure=sure),
            "records your statement that it did not happen; only a client's retry with the same key will run "
            f"it{_overridden(guards.overridable(held, terms), sure=sure)}",
        ),
        _redrive(held, terms, catalogue, sure=sure, new_key=False),
        _redrive(held, terms, catalogue, sure=sure, new_key=True),
        _prospect(
            CANCEL,
            guards.against_cancel(held, sure=sure),
            f"{_cancelling(held)} (idem intents cancel {intent['id']})",
        ),
    ]


def _completing(held: Snapshot) -> str:
    row = held.row
    answer = "stores the final answer of this key permanently; sends nothing again; runs the handlers"
    if row.plan is None:
        return answer
    plan, step = row.plan, row.step_name
    match plan.after(row.step, "succeeded"):
        case int() as following:
            succeeded = f"goes on with step {plan.step(following).name} (give the values that it uses with --field)"
        case _:
            succeeded = f"the flow ends: it {answer}"
    match plan.after(row.step, "refused"):
        case int() as undo:
            refused = f"undoes what is done, beginning with {plan.step(undo).name}"
        case _ if row.undoes is not None:
            refused = f"goes on without it, and what step {plan.step(row.undoes).name} did stays done"
        case _:
            refused = "the flow ends with this refusal as its answer, and what is done stays done"
    return f"records how step {step} ended. It happened: {succeeded}. --outcome refused: {refused}"


def _undoing(held: Snapshot) -> str:
    row = held.row
    assert row.plan is not None
    done = {end.number for end in row.ends if end.succeeded}
    undone = [row.plan.step(n).name for n in range(row.step - 1, 0, -1) if n in done]
    return f"does not make step {row.step_name} any more, and undoes {', '.join(undone)}; then the key has its answer"


def _cancelling(held: Snapshot) -> str:
    if held.row.plan is not None and any(end.succeeded for end in held.row.ends):
        return f"{_undoing(held)}, 409 `cancelled`"
    return "completes the key with the answer 409 `cancelled`; no retry with this key will run it"


def _redrive(held: Snapshot, terms: Terms, catalogue: Catalogue | None, *, sure: bool, new_key: bool) -> Prospect:
    row = held.row
    why_not = guards.against_redrive(held, terms, sure=sure, new_key=new_key)
    if why_not is None and catalogue is None:
        why_not = (
            "the configuration cannot be used (see the note). Correct it, or use the idem.toml with which the intent "
            "was accepted"
        )
    elif why_not is None and not terms.known:
        why_not = (
            f"operation {row.operation} is not in this configuration. Use the idem.toml with which the intent "
            "was accepted; if it is defined in Python, name its module with --app"
        )
    command = NEW_KEY if new_key else REDRIVE
    if why_not is not None:
        return Prospect(command, False, why_not)
    unknown, left = row.status == "unknown", held.window_left(terms)
    risks = list(guards.risks_of_redrive(held, terms, new_key=new_key))
    if new_key or row.key_burned:
        key = f"under a NEW provider key (the old one is {row.provider_key})"
    elif (unknown or held.operator_said_not_sent) and left > 0:
        key = f"under the same provider key {row.provider_key}, which the provider remembers for {guards.seconds(left)}"
    else:
        key = f"under the same provider key {row.provider_key}"
    if row.approval in UNAPPROVED:
        return Prospect(
            command,
            True,
            f"asks for its approval again: `idem intents approve` then sends it {key}; a redrive does not",
        )
    patience = terms.operation.patience
    if (unknown or held.operator_said_not_sent) and not risks:
        patience = min(patience, left)
    return Prospect(
        command,
        True,
        f"{'records it as not executed, then ' if unknown else ''}queues it and sends it again to "
        f"{row.provider}/{row.account} {key}; the call may start within {guards.seconds(patience)} from "
        f"now{_overridden(risks, sure=sure)}{_safer(held, terms, risks)}",
    )


def _overridden(risks: Iterable[guards.Risk], *, sure: bool) -> str:
    texts = "; ".join(text for _, text in risks) if sure else ""
    return f". YOU OVERRIDE: {texts}" if texts else ""


def _safer(held: Snapshot, terms: Terms, risks: list[guards.Risk]) -> str:
    unproven = {name for name, _ in risks} & {"new_key", "no_memory"}
    return f". What can settle it instead: {guards.instead(held, terms)}" if unproven else ""


def _prospect(command: str, why_not: str | None, effect: str) -> Prospect:
    return Prospect(command, why_not is None, effect if why_not is None else why_not)
