"""How an intent stands, and what an operator may do about it: pure guards, each with the reason and what to do.

The same guards are asked for the preview and again under the row's lock, so that a preview never promises more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from idem.outbox import durations
from idem.outbox.change import Row, StoredProof
from idem.outbox.endings import disagreement
from idem.outbox.outcomes import Refused, Succeeded, name
from idem.outbox.states import OutboxStatus
from idem.outbox.terms import Terms


@dataclass(frozen=True, slots=True)
class Standing:
    """An open outbox row with all that an operator's guards ask for.

    `lease_left` is of a claim or of a reconciler's take, in seconds, None where nobody has the row; `key_state` is
    None where the key is gone. `hints`: events about it that are still to be confirmed.
    """

    row: Row
    stored: tuple[StoredProof, ...]
    inline: bool
    lease_left: float | None
    key_state: str | None
    hints: tuple[UUID, ...] = ()


def quiet_left(standing: Standing, terms: Terms) -> float:
    """Seconds for which a request of this row may still act at the provider; 0 or less: none can any more."""
    row, contract = standing.row, terms.contract
    longest = contract.flight_limit + contract.pause_allowance
    # A row that became unknown without the end of a claim (Recovery) has no quiet time of its own.
    left = row.quiet_left if row.quiet_left is not None else longest - row.status_age
    if standing.lease_left is not None:
        # A take whose holder went away may have been a replay (the next take would raise the quiet time by this).
        left = max(left, standing.lease_left + longest)
    return left


def overridable(standing: Standing, terms: Terms) -> Iterator[tuple[str, str]]:
    """The guards of "it did not happen" that do not hold now, as (name, text). Only certainty may override them."""
    if (left := quiet_left(standing, terms)) > 0:
        yield "quiet_after", f"a request of it may still act at the provider for {seconds(left)}"
    if standing.row.contradicted:
        yield "conflict", "proofs that disagree, or an event still to be confirmed, say that the provider has it"


def against_cancel(standing: Standing, *, sure: bool = False) -> str | None:
    """Why this row cannot be cancelled now; None: it can. `sure`: the operator knows that nothing happened."""
    row = standing.row
    if busy := _busy(standing):
        return busy
    if row.step > 1:
        return f"step {row.step - 1} is done already, so the intent as a whole cannot be undone by cancelling"
    match row.status:
        case OutboxStatus.UNKNOWN:
            return "bytes may have left for the provider: settle it first, with `idem dlq resolve` or by waiting"
        case OutboxStatus.AWAITING:
            return "the provider has accepted it and is working: it can only be stopped there"
        case OutboxStatus.CLAIMED:
            return LEASE_OVER
        case _:
            return _unapplied(standing) or _unconfirmed(standing, sure=sure)


def against_redrive(standing: Standing, terms: Terms, *, sure: bool) -> str | None:
    """Why this row cannot go back to work now; None: it can. `sure`: the operator knows that nothing happened."""
    row = standing.row
    if busy := _busy(standing):
        return busy
    match row.status:
        case OutboxStatus.PENDING | OutboxStatus.UNFROZEN if standing.hints:
            pass  # at work, and yet nobody may send it: only a word about the event lets it go on
        case OutboxStatus.PENDING | OutboxStatus.WAITING | OutboxStatus.UNFROZEN:
            return f"it is at work already ({row.status}): nothing to redrive"
        case OutboxStatus.AWAITING:
            return "the provider has accepted it and is working: it is never sent again"
        case OutboxStatus.CLAIMED:
            return LEASE_OVER
        case OutboxStatus.UNKNOWN | OutboxStatus.HELD:
            pass
    if standing.inline:
        return "the caller's own code makes this call: only its own retry with the same key takes it up again"
    if row.key_used_anew or standing.key_state in (None, "expired"):
        return (
            "its key has expired, so its client may send it again as something new: a redrive could make it happen "
            "twice. Cancel it, and let the client send it with a new key"
        )
    if row.status is OutboxStatus.UNKNOWN:
        return against_failed(standing, terms, sure=sure)
    return _unapplied(standing) or _unconfirmed(standing, sure=sure)


def against_failed(standing: Standing, terms: Terms, *, sure: bool) -> str | None:
    """Why "it did not happen" cannot be recorded now; None: it can."""
    row = standing.row
    if busy := _busy(standing):
        return busy
    match row.status:
        case OutboxStatus.HELD:
            return "it is proven not executed already: redrive it, cancel it, or resolve it as completed"
        case OutboxStatus.PENDING | OutboxStatus.WAITING | OutboxStatus.UNFROZEN:
            return f"it is queued ({row.status}) and nothing of it was sent: cancel it if it must not happen"
        case OutboxStatus.AWAITING:
            return "the provider has accepted it: it can only end there. Resolve it as completed, succeeded or refused"
        case OutboxStatus.CLAIMED:
            return LEASE_OVER
        case OutboxStatus.UNKNOWN:
            pass
    if unapplied := _unapplied(standing):
        return unapplied
    if sure:
        return None
    texts = [text for _, text in overridable(standing, terms)]
    if not texts:
        return None
    return f"{'; '.join(texts)}. Wait, or take the responsibility with --i-know-it-did-not-happen"


def against_completed(standing: Standing, outcome: Succeeded | Refused | None = None) -> str | None:
    """Why "it happened" cannot be recorded now; None: it can. Without an `outcome` only the row itself is asked."""
    if busy := _busy(standing):
        return busy
    for stored in standing.stored if outcome is not None else ():
        if outcome is not None and disagreement(outcome, stored.proof):
            return (
                f"a stored proof of {stored.source} says {name(stored.proof)}, reference {stored.proof.reference}: "
                "the reconciler is about to apply it; look again then"
            )
    return None


LEASE_OVER = "its claim has run out and the sweeper is about to make it unknown: look again in a moment"


def _busy(standing: Standing) -> str | None:
    row, left = standing.row, standing.lease_left
    if left is None or left <= 0:
        return None
    what = "a call is live" if row.status is OutboxStatus.CLAIMED else "the reconciler is asking the provider about it"
    return f"{what} (attempt {row.attempt}, {row.holder}, lease ends in {seconds(left)}): wait for its end"


def _unapplied(standing: Standing) -> str | None:
    if not standing.stored:
        return None
    proof = standing.stored[0]
    return (
        f"a proof that nobody has applied yet says {name(proof.proof)} ({proof.source}): the reconciler applies it; "
        "look again then"
    )


def _unconfirmed(standing: Standing, *, sure: bool) -> str | None:
    if not standing.hints or sure:
        return None
    return (
        "an event still to be confirmed says that the provider has it, and the reconciler asks about it: look again "
        "then, or take the responsibility with --i-know-it-did-not-happen"
    )


def seconds(value: float) -> str:
    """A duration for people."""
    return durations.text(float(max(1, round(value))))
