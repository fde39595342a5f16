"""Asking about one claimed row: one strategy after the other, until one of them brings a proof."""

import dataclasses
from typing import Any, Literal, TypeAlias, assert_never

from idem.outbox.calls.lane import Lane
from idem.outbox.database.pool import Database
from idem.outbox.domain.contract import Contract, Strategy
from idem.outbox.domain.outcomes import (
    Absent,
    Ambiguous,
    CouldNotAsk,
    LookupOutcome,
    NotExecuted,
    Outcome,
    Pending,
    Refused,
    Seen,
    Succeeded,
    failure,
    name,
)
from idem.outbox.observe import telemetry
from idem.outbox.providers.errors import REQUEST
from idem.outbox.settle import decide
from idem.outbox.values import clock
from idem.outbox.worker.sender import Sender
from idem.reconciler import attempts, strategies, verdict
from idem.reconciler.control_question import ControlQuestion, Disbelief, not_trusted
from idem.reconciler.lookup_claim import LookupClaim

How: TypeAlias = Literal["replay", "lookup", "cancel"]
ANSWERS_THAT_DECIDE_NOTHING = REQUEST | {500}
"""Statuses of a replay or a cancel that are the provider's own word, given again and again: they use up a look
(IB-089)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """What asking came to.

    `sent`: an attempt was made that can still act. `attempt`: the one that it belongs to, if not the claim's. `burned`:
    the provider keeps this failure under the key; `server_error`: a send was answered with a 5xx. `tried`: what the
    ways before it came to, for the evidence.
    """

    how: How
    lookup: LookupOutcome
    seen: Seen
    sent: bool
    counts: bool = False
    attempt: int | None = None
    burned: bool = False
    server_error: bool = False
    why: str | None = None
    tried: tuple[dict[str, Any], ...] = ()


@dataclasses.dataclass(eq=False, repr=False)
class Asker:
    """Asks about the rows of one lane."""

    database: Database
    lane: Lane
    control: ControlQuestion
    sender: Sender

    @property
    def _contract(self) -> Contract:
        return self.lane.provider.contract

    async def ask(self, claim: LookupClaim) -> Answered | None:
        """Try one strategy after the other (`strategies`). None: there is nothing that could be asked, now or later.

        What is sent is an attempt: same lane, last check, deadline, limits and breaker as a worker's call.
        """
        askable = claim.may_look_up and bool(self.lane.provider.questions(claim.question))
        done: dict[Strategy, LookupOutcome] = {}
        steps: list[Answered] = []
        while True:
            strategy = strategies.following(
                self._contract,
                claim,
                done,
                askable=askable,
                sent=any(step.sent for step in steps),
                burned=any(step.burned for step in steps),
            )
            match strategy:
                case None:
                    return _all_of(steps) if steps else self._not_now(claim)
                case "replay":
                    step = await self._replay(claim)
                case "lookup":
                    step = await self._lookup(claim)
                case "cancel_by_key":
                    step = await self._cancel(claim)
                case _ as unlisted:
                    assert_never(unlisted)
            done[strategy] = CouldNotAsk() if step is None else step.lookup
            if step is not None:
                steps.append(step)
                claim = claim.as_attempt(step.attempt)

    def _not_now(self, claim: LookupClaim) -> Answered | None:
        """Why nothing was asked, where something may be asked later."""
        wait: float | None = None
        if not claim.may_look_up:
            why = "look-ups are paused"
        elif strategies.may_ever_cancel(self._contract, claim):
            why = "a cancel by key waits until no request that was sent can arrive after it"
            quiet = self._contract.flight_limit + self._contract.pause_allowance
            wait = max(0.0, quiet if claim.row.quiet_left is None else claim.row.quiet_left) + verdict.EDGE
        elif not claim.may_send:
            why = "replays are paused"
        else:
            return None
        return Answered("lookup", CouldNotAsk(wait), Seen(note=why), sent=False)

    async def _replay(self, claim: LookupClaim) -> Answered | None:
        assert claim.request is not None  # `strategies` asks for it
        attempt, sent_as = claim.row.attempt, self.sender.now()
        if not claim.begun:
            if (doubt := await self.control.vouch(claim, lease_ends=claim.lease_ends)) is not None:
                return _withheld("replay", doubt)
            async with self.database.connection() as connection:
                begun = await attempts.begin_replay(connection, claim, self._contract)
            if begun is None:
                return None
            attempt = begun
        outcome, seen = await self.lane.send(
            claim.row.id, claim.request, lease_ends=claim.lease_ends, send_by=claim.send_by,
            start=lambda: self.sender.now() == sent_as and (not claim.begun or self.sender.is_now(claim.sent_as)),
        )  # fmt: skip
        telemetry.called(
            self._contract.provider, self.lane.account.name, claim.row.intent_id, attempt, name(outcome), seen.elapsed,
            failure(outcome, seen), how="replay",
        )  # fmt: skip
        lookup = _as_lookup(outcome, seen, self._contract)
        return Answered(
            "replay",
            lookup,
            seen,
            # What is proven not executed cannot act later: it needs no quiet time of its own.
            sent=not isinstance(outcome, NotExecuted),
            counts=isinstance(lookup, CouldNotAsk) and seen.http_status in ANSWERS_THAT_DECIDE_NOTHING,
            attempt=attempt,
            burned=isinstance(outcome, Ambiguous) and outcome.cached,
            server_error=isinstance(outcome, Ambiguous) and decide.own_error(seen),
        )

    async def _lookup(self, claim: LookupClaim) -> Answered:
        question, asked_as = claim.question, self.sender.now()
        lookup, seen = await self.lane.ask(
            dataclasses.replace(question, earlier_keys=()), lease_ends=claim.lease_ends
        )  # fmt: skip
        # Everything under an earlier key is proven not executed: a refusal there, such as the object that was
        # cancelled, says nothing about this one. What exists there all the same contradicts that, and counts. So does
        # what commits that the database has forgotten have made under a later key.
        groups = [(claim.earlier_keys, False)] if claim.earlier_keys else []
        for keys, later in (*groups, *(((key,), True) for key in claim.later_keys)):
            before = dataclasses.replace(question, provider_key=keys[-1], earlier_keys=keys[:-1], reference=None)
            if later and not self.lane.provider.questions(before):
                break
            other, why = await self.lane.ask(before, lease_ends=claim.lease_ends)
            if isinstance(other, CouldNotAsk) and later and isinstance(lookup, Absent):
                # What could not be asked about may be there.
                lookup, seen = other, why
            elif isinstance(other, Succeeded | Pending):
                if isinstance(lookup, Succeeded | Pending) and lookup.reference != other.reference:
                    seen = dataclasses.replace(seen, copies=max(seen.copies, 1) + max(why.copies, 1))
                elif isinstance(lookup, Refused) or (later and not isinstance(lookup, Succeeded | Pending)):
                    lookup, seen = other, why
                elif not isinstance(lookup, Succeeded | Pending):
                    # What was sent under this key may act all the same, and nobody would ask about it again.
                    lookup, seen = other, dataclasses.replace(why, copies=max(why.copies, 1) + 1)
        doubt = await self.control.confirm(lookup, claim, asked_as=asked_as, lease_ends=claim.lease_ends)
        if doubt is not None:
            lookup, seen = not_trusted(doubt, seen)
            return Answered("lookup", lookup, seen, sent=False, counts=doubt.counts, why=_why(doubt))
        return Answered("lookup", lookup, seen, sent=False)

    async def _cancel(self, claim: LookupClaim) -> Answered | None:
        if self.lane.provider.cancel(claim.question) is None or self.lane.breaker.room(clock.boottime()) == 0:
            # It would burn the key and not be sent.
            return None
        asked_as = self.sender.now()
        if (doubt := self.control.elsewhere(claim)) is not None:
            return _withheld("cancel", doubt)
        if (doubt := await self.control.vouch(claim, lease_ends=claim.lease_ends)) is not None:
            return _withheld("cancel", doubt)
        async with self.database.connection() as connection:
            attempt = await attempts.begin_cancel(connection, claim, self._contract)
        if attempt is None:
            return None
        lookup, seen = await self.lane.cancel(claim.question, lease_ends=claim.lease_ends)
        # The credentials of another account cancel nothing there either, and say so (hazard 8).
        doubt = await self.control.confirm(
            lookup, claim, asked_as=asked_as, lease_ends=claim.lease_ends, looked=False
        )  # fmt: skip
        if doubt is not None:
            lookup, seen = not_trusted(doubt, seen)
        undecided = isinstance(lookup, CouldNotAsk)
        counts = undecided and (seen.http_status in ANSWERS_THAT_DECIDE_NOTHING or (doubt is not None and doubt.counts))
        return Answered("cancel", lookup, seen, sent=undecided, counts=counts, attempt=attempt, why=_why(doubt))


def _withheld(how: How, doubt: Disbelief) -> Answered:
    lookup, seen = not_trusted(doubt, Seen())
    return Answered(how, lookup, dataclasses.replace(seen, started=False), sent=False, counts=doubt.counts,
                    why=_why(doubt))  # fmt: skip


def _why(doubt: Disbelief | None) -> str | None:
    return doubt.note if doubt is not None and doubt.counts else None


def _all_of(steps: list[Answered]) -> Answered:
    """One result of all that was tried: what says most, the later of two that say the same."""
    best = max(range(len(steps)), key=lambda n: (_weight(steps[n]), n))
    return dataclasses.replace(
        steps[best],
        sent=any(step.sent for step in steps),
        attempt=max((step.attempt for step in steps if step.attempt is not None), default=None),
        burned=any(step.burned for step in steps),
        server_error=any(step.server_error for step in steps),
        why=next((step.why for step in reversed(steps) if step.why is not None), None),
        tried=tuple(
            {
                "how": step.how,
                "outcome": name(step.lookup),
                "http_status": step.seen.http_status,
                "note": step.seen.note,
            }
            for n, step in enumerate(steps)
            if n != best
        ),
    )


def _weight(step: Answered) -> int:
    match step.lookup:
        case Succeeded() | Refused() | Pending():
            return 4
        case Absent():
            return 3 if step.how == "cancel" else 2
        case CouldNotAsk():
            return 1 if step.counts else 0


def _as_lookup(outcome: Outcome, seen: Seen, contract: Contract) -> LookupOutcome:
    """On a replay only Succeeded, Pending and Refused count; a 401 or 404 there proves nothing about the first send."""
    match outcome:
        case Refused() if contract.unlisted_4xx == "answer" and seen.http_status in REQUEST:
            # A refusal of this request by its status alone: the first send may have met other rights, or another rule.
            return CouldNotAsk()
        case Succeeded() | Refused() | Pending():
            return outcome
        case NotExecuted(retry_after=wait):
            return CouldNotAsk(wait)
        case Ambiguous():
            return CouldNotAsk()
        case _ as unlisted:
            assert_never(unlisted)
