"""Decides from an intent's snapshot what an operator may do: pure guards, each with the reason and what to do.

The same guards are asked for the preview and again under the row's lock, so that a preview never promises more.
"""

from collections.abc import Iterator
from typing import TypeAlias

from idem.outbox.domain import approval
from idem.outbox.domain.outcomes import Refused, Succeeded, name
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.terms import Terms
from idem.outbox.operator.snapshot import Snapshot
from idem.outbox.settle import replay_window, steps
from idem.outbox.settle.endings import disagreement
from idem.outbox.values import durations

Risk: TypeAlias = tuple[str, str]
"""A guard that does not hold now, as (name, text). Only an operator who is certain overrides it."""


def overridable(snapshot: Snapshot, terms: Terms) -> Iterator[Risk]:
    """The guards of "it did not happen" that do not hold now."""
    if (left := snapshot.quiet_left(terms)) > 0:
        yield "quiet_after", f"one of its requests may still act at the provider for {seconds(left)}"
    if snapshot.row.contradicted:
        yield "conflict", "proofs that disagree, or an unconfirmed event, say that the provider has it"
    if snapshot.row.key_burned:
        # Its client's retry, or a redrive, would send it under another key.
        yield "new_key", f"{_UNPROVEN}, and its provider key is burned, so the next send has a new one. {MAY_PAY_TWICE}"


def risks_of_redrive(snapshot: Snapshot, terms: Terms, *, new_key: bool = False) -> Iterator[Risk]:
    """The guards of another send that do not hold now. `new_key`: under a new provider key.

    Another send is safe if everything before it is proven not executed, or if the provider knows the key.
    """
    row = snapshot.row
    unproven = snapshot.operator_said_not_sent or row.doubted_for is not None
    if row.status is OutboxStatus.UNKNOWN:
        unproven = True
        yield from overridable(snapshot, terms)
    elif snapshot.hints:
        yield "conflict", UNCONFIRMED
    if unproven and (new_key or row.key_burned):
        if row.status is not OutboxStatus.UNKNOWN or not row.key_burned:
            yield "new_key", f"{_UNPROVEN}, and under a new provider key the provider cannot know it. {MAY_PAY_TWICE}"
    elif unproven and snapshot.window_left(terms) <= 0:
        yield "no_memory", f"{_UNPROVEN}, and {_why_not_recognised(snapshot, terms)}. {MAY_PAY_TWICE}"
    if new_key and not (unproven or row.key_burned or snapshot.refused_as_it_is or not row.frozen):
        yield (
            "not_burned",
            (
                "its provider key is not burned: redrive it without --new-provider-key, because the provider still "
                "recognises the call by its key"
            ),
        )


def _why_not_recognised(snapshot: Snapshot, terms: Terms) -> str:
    if not terms.contract.replays:
        return "this provider does not recognise a second call by its key"
    if not snapshot.carried(terms):
        return "its request does not carry the key where the provider's contract now expects it"
    return "the provider no longer remembers its key"


MAY_PAY_TWICE = "If the provider has executed it, it happens twice (a customer may pay twice)"
_UNPROVEN = "nothing proves that the earlier request was not executed"
UNCONFIRMED = "an unconfirmed event says that the provider has it, and the reconciler is asking about it"


def instead(snapshot: Snapshot, terms: Terms) -> str:
    """The way without risk to settle an unknown row, which an operator should try first."""
    ways = []
    if (left := snapshot.window_left(terms)) > 0:
        ways.append(
            f"for another {seconds(left)} the provider answers a second call under the same key from its memory: use "
            "`idem reconcile --now`, or a redrive without --new-provider-key"
        )
    elif terms.contract.lookup.possible and snapshot.row.status is OutboxStatus.UNKNOWN:
        ways.append("`idem reconcile --now` asks the provider")
    ways.append(
        f"look for provider key {snapshot.row.provider_key} in the provider's own console, then `idem dlq resolve --as "
        "completed --reference ...`"
    )
    return "; or ".join(ways)


def against_cancel(snapshot: Snapshot, *, sure: bool = False, client: bool = False) -> str | None:
    """Why this row cannot be cancelled now; None: it can. `sure`: the operator knows that nothing happened. `client`:
    its client asks for it, who may not undo what is done."""
    row = snapshot.row
    if busy := _busy(snapshot):
        return busy
    if client and row.undoes is not None:
        return "it is being undone already"
    if any(end.succeeded for end in row.ends) and (client or (why := steps.nothing_to_undo(row))):
        return f"an earlier step is done ({', '.join(end.name for end in row.ends if end.succeeded)})" + (
            "" if client else f", and {why}"
        )
    return _not_made(snapshot, sure=sure)


def against_undo(snapshot: Snapshot) -> str | None:
    """Why what a flow has done cannot be undone now; None: it can."""
    return _busy(snapshot) or steps.nothing_to_undo(snapshot.row) or _not_made(snapshot, sure=False)


def _not_made(snapshot: Snapshot, *, sure: bool) -> str | None:
    """Why it is not certain that the open call is not made; None: it is."""
    row = snapshot.row
    match row.status:
        case OutboxStatus.UNKNOWN:
            return "bytes may have left for the provider: settle it first with `idem dlq resolve`, or wait"
        case OutboxStatus.AWAITING:
            return "the provider has accepted it and is working: it can only be stopped at the provider"
        case OutboxStatus.CLAIMED:
            return LEASE_OVER
        case _ if snapshot.operator_said_not_sent and not sure:
            return (
                "an operator said that the sent request did not happen, and nothing proves it; if it did happen, the "
                f"client would get `cancelled`. Settle it first, or take the responsibility with {OVERRIDE}"
            )
        case _:
            return _unapplied(snapshot) or _unconfirmed(snapshot, sure=sure) or _doubted(snapshot, sure=sure)


def against_redrive(snapshot: Snapshot, terms: Terms, *, sure: bool, new_key: bool = False) -> str | None:
    """Why this row cannot be queued again now; None if it can. `sure`: the operator knows that nothing happened.

    `new_key`: idem would send it under a new provider key. No certainty allows that while a request may still act.
    """
    row = snapshot.row
    if busy := _busy(snapshot):
        return busy
    match row.status:
        case OutboxStatus.PENDING | OutboxStatus.UNFROZEN | OutboxStatus.APPROVAL if snapshot.hints:
            pass  # queued, but not to be sent: only a statement about the event lets it continue
        case OutboxStatus.PENDING | OutboxStatus.WAITING | OutboxStatus.UNFROZEN:
            return f"it is already queued or running ({row.status}): nothing to redrive"
        case OutboxStatus.APPROVAL:
            return f"it waits for an approval, which a redrive does not give: {APPROVE}"
        case OutboxStatus.AWAITING:
            return "the provider has accepted it and is working: idem never sends it again"
        case OutboxStatus.CLAIMED:
            return LEASE_OVER
        case OutboxStatus.UNKNOWN | OutboxStatus.HELD:
            pass
    if new_key and (row.is_local_step or row.status not in (OutboxStatus.UNKNOWN, OutboxStatus.HELD)):
        return "only a call that is at rest or unknown may get a new provider key: redrive it without"
    if snapshot.inline:
        return "the caller's own code makes this call: only its own retry with the same key takes it up again"
    # A flow that has done something rests with an expired key only because an operator is to decide about it.
    if row.key_used_anew or (not row.ends and snapshot.key_state in (None, "expired")):
        return (
            "its key has expired, so the client may send it again as a new request: a redrive could make it happen "
            "twice. Cancel it, and let the client send it with a new key"
        )
    if unapplied := _unapplied(snapshot):
        return unapplied
    risks = list(risks_of_redrive(snapshot, terms, new_key=new_key))
    if refused := _unless_sure(risks, snapshot, terms, sure=sure):
        return refused
    left = snapshot.quiet_left(terms) if row.status is OutboxStatus.UNKNOWN else row.quiet_left or 0.0
    if new_key and left > 0:
        return (
            f"one of its requests may still act at the provider for {seconds(left)}: idem gives it a new provider key "
            "only after that time"
        )
    return None


def _unless_sure(risks: list[Risk], snapshot: Snapshot, terms: Terms, *, sure: bool) -> str | None:
    if sure or not risks:
        return None
    way = "Wait"
    if {name for name, _ in risks} & {"new_key", "no_memory"}:
        way = f"What settles it: {instead(snapshot, terms)}. Do that"
    elif "not_burned" in dict(risks):
        return f"{dict(risks)['not_burned']}. Do that, or take the responsibility with {OVERRIDE}"
    return f"{'; '.join(text for _, text in risks)}. {way}, or take the responsibility with {OVERRIDE}"


OVERRIDE = "--i-know-it-did-not-happen"


def against_failed(snapshot: Snapshot, terms: Terms, *, sure: bool) -> str | None:
    """Why "it did not happen" cannot be recorded now; None: it can."""
    row = snapshot.row
    if busy := _busy(snapshot):
        return busy
    match row.status:
        case OutboxStatus.HELD:
            return "it is already proven not executed: redrive it, cancel it, or resolve it as completed"
        case OutboxStatus.PENDING | OutboxStatus.WAITING | OutboxStatus.UNFROZEN:
            return f"it is queued ({row.status}) and was never sent: cancel it if it must not happen"
        case OutboxStatus.APPROVAL:
            return f"it waits for an approval and was never sent: {APPROVE}"
        case OutboxStatus.AWAITING:
            return (
                "the provider has accepted it: say how it ended there with --as completed --outcome succeeded|refused"
            )
        case OutboxStatus.CLAIMED:
            return LEASE_OVER
        case OutboxStatus.UNKNOWN:
            pass
    return _unapplied(snapshot) or _unless_sure(list(overridable(snapshot, terms)), snapshot, terms, sure=sure)


def against_completed(snapshot: Snapshot, outcome: Succeeded | Refused | None = None) -> str | None:
    """Why "it happened" cannot be recorded now; None if it can. Without an `outcome` it checks only the row itself."""
    if busy := _busy(snapshot):
        return busy
    for stored in snapshot.stored if outcome is not None else ():
        if outcome is not None and disagreement(outcome, stored.proof):
            return (
                f"a stored proof of {stored.source} says {name(stored.proof)}, reference {stored.proof.reference}: "
                "the reconciler is about to apply it; run the command again after that"
            )
    return None


APPROVE = "decide with `idem intents approve ID` or `idem intents reject ID`"


def against_approve(snapshot: Snapshot, by: str) -> str | None:
    """Why this row cannot be approved now by this operator; None: it can. The database asks all of it again."""
    row = snapshot.row
    if row.status is not OutboxStatus.APPROVAL:
        return _waits_not(snapshot)
    if row.start_left <= 0:
        return "it was not decided in the time in which it could start: the client must ask again"
    if row.approval == "wanted_of_another" and row.asked_by is None:
        return (
            "its operation wants the approval of another person than the one who asked, who is not on record: reject it"
        )
    if row.approval == "wanted_of_another" and approval.same_person(by, row.asked_by):
        return f"{row.asked_by} asked for it, and its operation wants the approval of another person"
    left = replay_window.memory_left(row.replay_window, row.doubted_for, None)
    if left is not None and left <= 0:
        return "lost commits may have sent it, and the provider may not remember that: the sweeper makes it unknown"
    return _unapplied(snapshot) or _unconfirmed(snapshot, sure=False)


def against_reject(snapshot: Snapshot, *, sure: bool = False) -> str | None:
    """Why this row cannot be rejected now; None: it can. `sure`: the operator knows that nothing happened."""
    if snapshot.row.status is not OutboxStatus.APPROVAL:
        return _waits_not(snapshot)
    return against_cancel(snapshot, sure=sure)


def _waits_not(snapshot: Snapshot) -> str:
    row = snapshot.row
    text = f"it does not wait for an approval (it is {row.status})"
    if row.status is OutboxStatus.HELD and row.queued_as is OutboxStatus.APPROVAL:
        text += ": the client's retry, or `idem dlq redrive`, asks for it again"
    return text


LEASE_OVER = "its lease has expired and the sweeper is about to make it unknown: run the command again in a moment"


def _busy(snapshot: Snapshot) -> str | None:
    row, left = snapshot.row, snapshot.lease_left
    if left is None or left <= 0:
        return None
    calling = row.status is OutboxStatus.CLAIMED
    what = "a call is in progress" if calling else "the reconciler is asking the provider about it"
    return f"{what} (attempt {row.attempt}, {row.holder}, lease expires in {seconds(left)}): wait until it ends"


def _unapplied(snapshot: Snapshot) -> str | None:
    if not snapshot.stored:
        return None
    proof = snapshot.stored[0]
    return (
        f"a stored proof that is not applied yet says {name(proof.proof)} ({proof.source}): the reconciler applies "
        "it; run the command again after that"
    )


def _unconfirmed(snapshot: Snapshot, *, sure: bool) -> str | None:
    if not snapshot.hints or sure:
        return None
    return f"{UNCONFIRMED}: run the command again after that, or take the responsibility with {OVERRIDE}"


def _doubted(snapshot: Snapshot, *, sure: bool) -> str | None:
    if snapshot.row.doubted_for is None or sure:
        return None
    return (
        "the database went back to an earlier point, so the lost commits may have sent it (`idem recover`): let idem "
        f"send it again, which is harmless for now, or take the responsibility with {OVERRIDE}"
    )


def seconds(value: float) -> str:
    """A duration for people."""
    return durations.rough(float(max(1, round(value))))
