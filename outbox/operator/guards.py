"""How an intent stands, and what an operator may do about it: pure guards, each with the reason and what to do.

The same guards are asked for the preview and again under the row's lock, so that a preview never promises more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.outcomes import Refused, Succeeded, name
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Row, StoredProof
from idem.outbox.providers import request_parts
from idem.outbox.settle import replay_window
from idem.outbox.settle.endings import disagreement, flight_left
from idem.outbox.values import durations


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
    memory_age: float = 0.0
    """Seconds since the first send under its provider key at the earliest: the provider's memory counts from there."""
    on_word: bool = False
    """"Not executed" is an operator's word about what was sent under this key, and nothing has proven it since."""
    refused_as_it_is: bool = False
    """The provider has refused the frozen request itself: an open `rejected` says so."""
    request: FrozenRequest | None = None
    """As it is sent, under the row's own provider key; None: it was never rendered."""

    def carried(self, terms: Terms) -> bool:
        """Whether the provider learns the key from its request, by the contract of now."""
        return (
            self.request is None
            or self.inline
            or request_parts.carried(self.request, terms.contract.key, self.row.provider_key)
        )


def quiet_left(standing: Standing, terms: Terms) -> float:
    """Seconds for which a request of this row may still act at the provider; 0 or less: none can any more."""
    row, contract = standing.row, terms.contract
    longest = contract.flight_limit + contract.pause_allowance
    # A row that became unknown without the end of a claim (Recovery) has no quiet time of its own.
    left = row.quiet_left if row.quiet_left is not None else longest - row.status_age
    if row.status is OutboxStatus.UNKNOWN:
        left = max(left, flight_left(row, contract))
    if standing.lease_left is not None:
        # A take whose holder went away may have been a replay (the next take would raise the quiet time by this).
        left = max(left, standing.lease_left + longest)
    return left


Risk: TypeAlias = tuple[str, str]
"""A guard that does not hold now, as (name, text). Only an operator's certainty overrides it."""


def window_left(standing: Standing, terms: Terms) -> float:
    """Seconds for which the provider answers a second call under the same key from its memory; 0: it does not."""
    row = standing.row
    if row.key_burned or row.inline or not standing.carried(terms):
        # Whether the caller's own code sends the provider's key is not known here.
        return 0.0
    return max(0.0, replay_window.memory_left(row.replay_window, standing.memory_age, terms.contract) or 0.0)


def overridable(standing: Standing, terms: Terms) -> Iterator[Risk]:
    """The guards of "it did not happen" that do not hold now."""
    if (left := quiet_left(standing, terms)) > 0:
        yield "quiet_after", f"a request of it may still act at the provider for {seconds(left)}"
    if standing.row.contradicted:
        yield "conflict", "proofs that disagree, or an event still to be confirmed, say that the provider has it"
    if standing.row.key_burned:
        # Its client's retry, or a redrive, would send it under another key.
        yield "new_key", f"{_UNPROVEN}, and its provider key is burned, so the next send has a new one. {MAY_PAY_TWICE}"


def risks_of_redrive(standing: Standing, terms: Terms, *, new_key: bool = False) -> Iterator[Risk]:
    """The guards of another send that do not hold now. `new_key`: under a new provider key.

    Another send is safe where everything before it is proven not executed, or where the provider knows the key.
    """
    row = standing.row
    unproven = standing.on_word or row.doubted_for is not None
    if row.status is OutboxStatus.UNKNOWN:
        unproven = True
        yield from overridable(standing, terms)
    elif standing.hints:
        yield "conflict", UNCONFIRMED
    if unproven and (new_key or row.key_burned):
        if row.status is not OutboxStatus.UNKNOWN or not row.key_burned:
            yield "new_key", f"{_UNPROVEN}, and under a new provider key the provider cannot know it. {MAY_PAY_TWICE}"
    elif unproven and window_left(standing, terms) <= 0:
        yield "no_memory", f"{_UNPROVEN}, and {_why_not_recognised(standing, terms)}. {MAY_PAY_TWICE}"
    if new_key and not (unproven or row.key_burned or standing.refused_as_it_is or not row.frozen):
        yield (
            "not_burned",
            (
                "its provider key is not burned: redrive it without --new-provider-key, and the provider still knows "
                "the call by its key"
            ),
        )


def _why_not_recognised(standing: Standing, terms: Terms) -> str:
    if not terms.contract.replays:
        return "this provider does not recognise a second call by its key"
    if not standing.carried(terms):
        return "its request does not carry the key where the provider's contract expects it now"
    return "the time in which the provider remembers its key is over"


MAY_PAY_TWICE = "If the provider has carried it out, it happens twice (a customer may pay twice)"
_UNPROVEN = "nothing proves that what was sent before was not carried out"
UNCONFIRMED = "an event still to be confirmed says that the provider has it, and the reconciler asks about it"


def instead(standing: Standing, terms: Terms) -> str:
    """What would settle an unknown row without a risk: what an operator should do first."""
    ways = []
    if (left := window_left(standing, terms)) > 0:
        ways.append(
            f"for {seconds(left)} more the provider answers a second call under the same key from its memory: "
            "`idem reconcile --now`, or a redrive without --new-provider-key"
        )
    elif terms.contract.lookup.possible and standing.row.status is OutboxStatus.UNKNOWN:
        ways.append("`idem reconcile --now` asks the provider")
    ways.append(
        f"look for provider key {standing.row.provider_key} in the provider's own console, then `idem dlq resolve --as "
        "completed --reference ...`"
    )
    return "; or ".join(ways)


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
        case _ if standing.on_word and not sure:
            return (
                "an operator said that what was sent did not happen, and nothing proves it; if it did, its client "
                f"would be told `cancelled` of it. Settle it first, or take the responsibility with {OVERRIDE}"
            )
        case _:
            return _unapplied(standing) or _unconfirmed(standing, sure=sure) or _doubted(standing, sure=sure)


def against_redrive(standing: Standing, terms: Terms, *, sure: bool, new_key: bool = False) -> str | None:
    """Why this row cannot go back to work now; None: it can. `sure`: the operator knows that nothing happened.

    `new_key`: it would be sent under a new provider key. No certainty allows that while something sent may still act.
    """
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
    if unapplied := _unapplied(standing):
        return unapplied
    risks = list(risks_of_redrive(standing, terms, new_key=new_key))
    if refused := _unless_sure(risks, standing, terms, sure=sure):
        return refused
    left = quiet_left(standing, terms) if row.status is OutboxStatus.UNKNOWN else row.quiet_left or 0.0
    if new_key and left > 0:
        return (
            f"a request of it may still act at the provider for {seconds(left)}: a new provider key is given only "
            "after that time"
        )
    return None


def _unless_sure(risks: list[Risk], standing: Standing, terms: Terms, *, sure: bool) -> str | None:
    if sure or not risks:
        return None
    way = "Wait"
    if {name for name, _ in risks} & {"new_key", "no_memory"}:
        way = f"What settles it: {instead(standing, terms)}. Do that"
    elif "not_burned" in dict(risks):
        return f"{dict(risks)['not_burned']}. Do that, or take the responsibility with {OVERRIDE}"
    return f"{'; '.join(text for _, text in risks)}. {way}, or take the responsibility with {OVERRIDE}"


OVERRIDE = "--i-know-it-did-not-happen"


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
            return (
                "the provider has accepted it: say how it ended there, with --as completed --outcome succeeded|refused"
            )
        case OutboxStatus.CLAIMED:
            return LEASE_OVER
        case OutboxStatus.UNKNOWN:
            pass
    return _unapplied(standing) or _unless_sure(list(overridable(standing, terms)), standing, terms, sure=sure)


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
    return f"{UNCONFIRMED}: look again then, or take the responsibility with {OVERRIDE}"


def _doubted(standing: Standing, *, sure: bool) -> str | None:
    if standing.row.doubted_for is None or sure:
        return None
    return (
        "the database went back to an earlier moment, so it may have been sent by what was lost (`idem recover`): let "
        f"it be sent again, which is harmless for now, or take the responsibility with {OVERRIDE}"
    )


def seconds(value: float) -> str:
    """A duration for people."""
    return durations.rough(float(max(1, round(value))))
