"""In which order the ways to settle are tried, and which of them may be tried now: pure.

Where the provider answers a replay with what it has stored, the replay is the answer, and comes first. Where a replay
could execute (`success_only`, `none`) it is never made: the look-ups come first (hazard 9, semantics 9). A cancel by
key comes last and is made only for what the ways before it cannot decide: it makes "not executed" of what may have
been on its way to succeed.
"""

from collections.abc import Mapping
from typing import assert_never

from idem.outbox.domain.contract import Contract, Strategy
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.outcomes import Absent, CouldNotAsk, LookupOutcome
from idem.outbox.domain.states import OutboxStatus
from idem.reconciler.lookup_claim import LookupClaim


def order(contract: Contract) -> tuple[Strategy, ...]:
    """The ways to settle, best first: as the contract says, else as it follows from its `replay`."""
    if contract.strategies:
        return contract.strategies
    return ("replay", "lookup", "cancel_by_key") if contract.replays else ("lookup", "cancel_by_key")


def replay_first(contract: Contract) -> bool:
    """Whether a claim begins with a replay."""
    return order(contract)[0] == "replay"


def following(
    contract: Contract,
    claim: LookupClaim,
    done: Mapping[Strategy, LookupOutcome],
    *,
    askable: bool,
    sent: bool,
    burned: bool,
) -> Strategy | None:
    """What to try next; None: nothing more in this claim.

    `done`: what was tried, and what it said. `askable`: the row has a question. `sent`: the claim made an attempt that
    can still act; `burned`: it showed that the key is burned.
    """
    if any(not isinstance(lookup, Absent | CouldNotAsk) for lookup in done.values()) or "cancel_by_key" in done:
        return None
    if claim.row.cancel_sent and claim.row.status is OutboxStatus.UNKNOWN:
        # It may have voided what a look-up still shows, or be about to: only another one says what is there.
        return "cancel_by_key" if cancels(contract, claim, done, askable=askable, sent=sent, burned=burned) else None
    for strategy in order(contract):
        if strategy in done:
            continue
        match strategy:
            case "replay":
                possible = claim.replay and claim.request is not None and not burned
            case "lookup":
                possible = askable
            case "cancel_by_key":
                possible = cancels(contract, claim, done, askable=askable, sent=sent, burned=burned)
            case _ as unlisted:
                assert_never(unlisted)
        if possible:
            return strategy
    return None


def cancels(
    contract: Contract,
    claim: LookupClaim,
    done: Mapping[Strategy, LookupOutcome],
    *,
    askable: bool,
    sent: bool,
    burned: bool,
) -> bool:
    """Whether a cancel by key is to be made now.

    Never while something sent may still arrive after it, unless a cancel blocks late requests; never against proofs on
    record; and not before every way that the contract puts before it has had its chances: enough agreeing absences are
    a verdict without it, so it is made at the last rung of the schedule, or where an absence can never settle.
    """
    if not may_ever_cancel(contract, claim) or contract.cancel is None or not claim.may_send:
        return False
    if not contract.cancel.blocks_late_requests and (sent or claim.row.quiet_left is None or claim.row.quiet_left > 0):
        return False
    if claim.row.cancel_sent:
        return True
    before = order(contract)[: order(contract).index("cancel_by_key")]
    last = claim.lookups_then >= len(contract.schedule)
    if "replay" in before and claim.replay and not burned and not last:
        return False
    if "lookup" in before and askable:
        if not isinstance(done.get("lookup"), Absent):
            # No answer to a question: the provider is not to be had, and a cancel would not be either.
            return False
        return last or (may_act_late(contract, claim.row) and claim.row.absences + 1 >= contract.lookup.agree)
    return True


def may_ever_cancel(contract: Contract, claim: LookupClaim) -> bool:
    """Whether a cancel by key can settle this row, now or later."""
    return (
        contract.cancel is not None
        and "cancel_by_key" in order(contract)
        and claim.row.status is OutboxStatus.UNKNOWN
        and not claim.row.inline
        and claim.carried
        and claim.withheld is None
        and not claim.row.contradicted
        # If a cancel does not block late requests, nothing stops what the provider itself takes up later.
        and (contract.cancel.blocks_late_requests or not may_act_late(contract, claim.row))
    )


def may_act_late(contract: Contract, row: OutboxRow) -> bool:
    """Whether the provider may still carry out what it answered with a 5xx: an absence then settles nothing."""
    return contract.late_effects and row.server_error
