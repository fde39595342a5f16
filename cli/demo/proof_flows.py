"""Flows: what the bank has done of each step, against the order of the steps, their ends and the client's answer.

Which request is of which step is the bank's own word: each names its order and its step in its path.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from idem.cli.demo.proof_records import BrokenPromise, ProofCall, ProofCase, Records, sent_as
from idem.cli.demo.proof_sends import TOLERANCE


@dataclass(frozen=True, slots=True)
class FlowNumbers:
    """The flows of a demo: how many there are, how they ended, and how often the bank has made each step.

    `undone`: those of the refused ones of which something had been done, and was undone. `partial`: partly done, with
    a dead letter.
    """

    flows: int = 0
    succeeded: int = 0
    refused: int = 0
    undone: int = 0
    partial: int = 0
    effects: Mapping[str, int] = field(default_factory=dict)


def numbers(records: Records) -> FlowNumbers:
    """Count the flows, and the effects by step."""
    flows = _flows(records)
    effects = Counter({step.name: 0 for steps in records.rules.flows.values() for step in steps})
    for case in flows:
        effects.update({call.step.name: len(call.charged) for call in case.calls if call.step is not None})
    refused = [case for case in flows if case.intent.outcome == "refused"]
    return FlowNumbers(
        flows=len(flows),
        succeeded=sum(case.intent.outcome == "succeeded" for case in flows),
        refused=len(refused),
        undone=sum(bool(case.charged) and not _not_undone(case) for case in refused),
        partial=sum(case.intent.outcome is None and any(letter.open for letter in case.letters) for case in flows),
        effects=dict(effects),
    )


def wanted(case: ProofCase) -> int:
    """How many effects a flow should have, by the ends of its steps."""
    return sum(call.end is not None and call.end.outcome == "succeeded" for call in case.calls)


def ends(records: Records) -> Iterator[BrokenPromise]:
    """Steps that ended as done, and were not, or the other way round; and sends of steps that have not begun."""
    for case in _flows(records):
        for call in case.calls:
            yield from _end(case, call)


def outcomes(records: Records) -> Iterator[BrokenPromise]:
    """Answers that are not true: every step of a flow is done, or nothing of it stands; and the answer says so."""
    for case in _flows(records):
        intent = case.intent
        not_undone = _not_undone(case)
        if intent.state != "completed":
            # A flow that is partly done and not complete needs a person, whom an open dead letter tells.
            if not_undone and not any(letter.open for letter in case.letters):
                yield case.finding("P5", "a flow is partly done without a dead letter", call=not_undone[0])
            continue
        if intent.outcome == "succeeded":
            for call in case.forward:
                if call not in not_undone:
                    yield case.finding("P1", "a flow is answered as done, but a step was not done", call=call)
        else:
            for call in not_undone:
                yield case.finding("P3", "a flow is answered as refused, but a step of it stands", call=call)
        yield from _told(case)


def order(records: Records) -> Iterator[BrokenPromise]:
    """Steps that were sent before their turn, after their end or after a later one; undoing what was not done."""
    for case in _flows(records):
        sends = sorted((send.id, call.number) for call in case.calls for send in call.sends)
        for (_, number), (later, following) in pairwise(sends):
            if following < number:
                seen = f"bank: request {later} after one of step {number}"
                yield case.finding("P2", "an earlier step was sent after a later one", seen, call=_of(case, following))
        for call in case.calls:
            if call.sends:
                yield from _turn(case, call)
                yield from _again(case, call, records)


def keys(records: Records) -> Iterator[BrokenPromise]:
    """Steps that were sent under a key that is not their own, and keys that two steps share."""
    for case in _flows(records):
        of: dict[str, int] = {}
        for call in case.calls:
            frozen = {row.provider_key for row in call.requests}
            for key in frozen:
                if of.setdefault(key, call.number) != call.number:
                    yield case.finding("P2", "two steps have one provider key", f"database: {key}", call=call)
            for send in call.sends:
                if sent_as(send) not in frozen:
                    seen = f"bank: request {send.id} under {sent_as(send)}"
                    yield case.finding("P2", "a step was sent under a key that is not its own", seen, call=call)


def _flows(records: Records) -> list[ProofCase]:
    return [case for case in records.cases if case.is_flow]


def _of(case: ProofCase, number: int) -> ProofCall:
    return case.calls[number - 1]


def _not_undone(case: ProofCase) -> list[ProofCall]:
    """The forward steps that the bank has done, and not undone."""
    undone = {call.step.undoes for call in case.calls if call.step is not None and call.charged}
    return [call for call in case.forward if call.step is not None and call.charged and call.step.name not in undone]


def _end(case: ProofCase, call: ProofCall) -> Iterator[BrokenPromise]:
    if call.end is None:
        if call.sends and not call.is_open:
            yield case.finding("P2", "a step that has not begun was sent", call=call)
        elif call.charged and case.intent.status == "held":
            yield case.finding("P2", "a step waits as not done, but was done", call=call)
    elif call.end.outcome == "succeeded":
        if not call.charged:
            yield case.finding("P1", "a step counts as done, but nothing was done", call=call)
        elif call.end.reference not in [payment.id for payment in call.charged]:
            seen = f"database: reference {call.end.reference}"
            yield case.finding("P1", "a step counts as done by another payment", seen, call=call)
    elif call.charged:
        yield case.finding("P2", "a step counts as not done, but was done", f"database: {call.end.outcome}", call=call)


def _told(case: ProofCase) -> Iterator[BrokenPromise]:
    """What the stored answer says of each step, against what the bank has done."""
    told = dict(case.intent.answer_steps or {})
    happened = {
        call.step.name: "succeeded" if call.charged else "refused"
        for call in case.calls
        if call.step is not None and call.payments
    }
    said = {name: outcome for name, outcome in told.items() if outcome != "skipped"}
    if said != happened:
        seen = f"answer: {_listed(said)}; bank: {_listed(happened)}"
        yield case.finding("P3", "an answer says something else of the steps than was done", seen)


def _turn(case: ProofCase, call: ProofCall) -> Iterator[BrokenPromise]:
    assert call.step is not None
    first = min(send.at for send in call.sends)
    if call.step.undoes is None:
        for before in case.forward:
            if before.number < call.number and (before.done_at is None or before.done_at > first):
                yield case.finding("P2", "a step was sent before an earlier one was done", *before.where, call=call)
        return
    undone = next(each for each in case.forward if each.step is not None and each.step.name == call.step.undoes)
    if undone.done_at is None:
        yield case.finding("P2", "a step was undone that was not done", *undone.where, call=call)
    if not any(each.refused_at is not None and each.refused_at <= first for each in case.forward):
        yield case.finding("P2", "a step was undone before the bank had refused a later one", call=call)


def _again(case: ProofCase, call: ProofCall, records: Records) -> Iterator[BrokenPromise]:
    ended = min((row.at for row in call.evidence if row.ends_step), default=None)
    last = call.sends[-1]
    if ended is not None and records.at_bank(last.at) > ended + TOLERANCE:
        seen = f"bank: request {last.id} {records.at_bank(last.at) - ended:.2f} s after the end of the step"
        yield case.finding("P2", "a step was sent again after its end", seen, call=call)


def _listed(steps: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {outcome}" for name, outcome in sorted(steps.items())) or "nothing"
