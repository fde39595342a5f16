"""What must hold of every cell at its end, read from the bank's own log, and of the database only what it must explain.

Times are those of the bank's clock. It was moved together with the rows, so a row of evidence can be set beside a line
of the log. Each check raises AssertionError; `CHECKS` are all of them.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from matrix.cells import Cell
from matrix.observed import Observed, Told
from matrix.variants import AGREE, FLIGHT, HORIZON, Variant

from idem.decisions import Replay
from idem.outbox.domain.contract import Response
from idem.outcomes import NotExecuted, Outcome
from idem.testing.bank import BankFault, Request
from idem.testing.bank.answers import by_fault
from idem.testing.bank.faults import Acts, AnswerFault
from idem.testing.bank.records import NOT_CHARGED, Payment, Remembered, Voided

OPEN = ("unknown", "in_progress")


def sends(seen: Observed, told: Told) -> list[Request]:
    """Everything that was sent for an intent, under whichever of its keys."""
    return [each for each in seen.log.sends() if (each.key or each.reference) in told.keys]


def said(cell: Cell, send: Request) -> Outcome | None:
    """What the contract says of the bank's answer, where the fault is the answer and it came whole; else None."""
    plan = None if send.fault is None else BankFault.parse(send.fault).plan
    if plan is None or plan.acts is not Acts.NEVER or plan.delivery is not AnswerFault.WHOLE or plan.answer is None:
        return None
    answer = by_fault(plan.answer, None)
    provider = cell.variant.provider("http://127.0.0.1:9", [cell.name], False)
    return provider.classify(Response(answer.status, answer.headers, answer.body))[0]


def refused_as_it_is(cell: Cell, send: Request) -> bool:
    """The provider does not take this request: whoever made it must decide, nothing is redriven."""
    return said(cell, send) == NotExecuted("request")


def one_effect(seen: Observed, cell: Cell) -> None:
    """Exactly one effect an intent, and the answer names it; none where the bank's own decision was a refusal, where it
    did not take the request as it is, or where a person has to decide."""
    for told in seen.of(cell):
        made = sends(seen, told)
        standing = [p for p in seen.log.effects() if (p.key or p.reference) in told.keys]
        executed = [p for p in seen.log.payments() if (p.key or p.reference) in told.keys]
        ends = {p.becomes or p.status for p in executed}
        if told.state == "failed_retryable":
            assert refused_as_it_is(cell, made[-1]), f"{told.id} rests, and the bank would take it: {made[-1]}"
            assert not standing
        elif told.state == "unknown":
            assert len(standing) == len(executed) <= 1, made
            continue
        elif executed and ends <= NOT_CHARGED:
            assert (standing, told.outcome) == ([], "refused"), told
        else:
            assert len(standing) == 1, f"{len(standing)} effects of {told.id}: {made}"
            assert (told.outcome, told.reference) == ("succeeded", standing[0].id), told
        # Where one send met the only fault, the plan of that fault alone says it.
        if len(cell.faults) == len(made) == 1 and not told_after_its_cancel(seen, told):
            (plan,) = cell.plans
            refuses = (plan.becomes or plan.status) in NOT_CHARGED or refused_as_it_is(cell, made[0])
            assert len(standing) == (0 if refuses else 1), (cell.name, standing)


def settled(seen: Observed, cell: Cell) -> None:
    """Nothing is left open and nobody is called, but where the bank does not take the request, or the contract leaves a
    person as the only way (hazard 39). Failed questions use up no look, so they end no schedule (hazard 27)."""
    assert len(seen.of(cell)) == cell.intents
    for told in seen.of(cell):
        letters = [reason for reason, _ in told.letters]
        if told_after_its_cancel(seen, told):
            # What came after the end of the new send is only compared, and a person may be told (hazard 17).
            assert told.state == "completed" and letters in ([], ["possible_duplicate"]), told
        elif told.state == "failed_retryable":
            assert (told.status, letters) == ("held", ["rejected"]), told
        elif told.state == "unknown":
            assert asks_a_person(cell) and letters == [_last_word(seen)], told
        else:
            assert (told.state, told.status) == ("completed", None), (told.state, told.status, told.letters)
            assert not letters, told.letters


def asks_a_person(cell: Cell) -> bool:
    """Whether nothing but a person or an event can settle what is unknown."""
    contract = cell.variant.contract
    return not (contract.replays or contract.lookup.possible or contract.cancel)


def told_after_its_cancel(seen: Observed, told: Told) -> bool:
    """Whether an event that says that a payment was made came after that payment had been called off."""
    voided = {r.payment: r.at for r in seen.log.records if isinstance(r, Voided) and r.key in told.keys}
    first = {each.id: each for each in reversed(seen.log.webhooks) if each.payment in voided}
    return any(each.at > voided[each.payment] and not each.type.endswith("canceled") for each in first.values())


def _last_word(seen: Observed) -> str:
    return "reconcile_exhausted" if seen.webhooks else "not_settleable"


def nothing_forbidden(seen: Observed, cell: Cell) -> None:
    """Every send after another one for the same intent was allowed by the contract when it was made.

    Either all that was sent before is proven not executed: by its answer, by look-ups that agree after flight limit and
    horizon, or by a cancel. Or it is a replay that the contract knows to be harmless: under the same key with the same
    bytes, inside retention less margin, and not after the key was burned by a cancel or by a failure that the bank
    keeps (hazards 7, 9, 10).
    """
    for told in seen.of(cell):
        made = sends(seen, told)
        assert {each.account for each in made} <= {cell.name}, f"{told.id} was sent to another account"
        for n, later in enumerate(made[1:], 1):
            may_act = [each for each in made[:n] if not _proven_absent(seen, cell, each, later)]
            if may_act:
                why = _why_no_replay(seen, cell.variant, may_act, later)
                assert why is None, f"{told.id}, send {n + 1} at {later.at - made[0].at:.1f} s: {why}"
        for earlier, later in pairwise(made):
            if earlier.key != later.key:
                assert later.at - earlier.at > FLIGHT, f"{told.id}: a new key before the old one's end of flight"
        for cancel in seen.log.cancels(account=cell.name):
            after = [each for each in made if each.key == cancel.key and each.at > cancel.at and each.id > cancel.id]
            assert not after, f"{told.id} was sent under a cancelled key: {after}"
    known = {key for told in seen.of(cell) for key in told.keys}
    strange = [each for each in seen.log.sends(account=cell.name) if (each.key or each.reference) not in known]
    assert not strange, f"sends that belong to no intent: {strange}"


def _why_no_replay(seen: Observed, variant: Variant, may_act: list[Request], later: Request) -> str | None:
    contract = variant.contract
    if contract.key.replay not in ("stored", "current"):
        return f"a second send under replay = {contract.key.replay} while {may_act[0]} may have acted"
    if any(each.key != later.key for each in may_act):
        return "another key, while what was sent under the first may have acted"
    if any((each.body_sha256, each.path) != (later.body_sha256, later.path) for each in may_act):
        return "other bytes under the same key"
    if later.at - may_act[0].at >= variant.retention:
        return f"a replay {later.at - may_act[0].at:.1f} s after the first send, allowed for {variant.retention:g} s"
    kept = any(isinstance(r, Remembered | Payment) and r.key == later.key and _kept(r) for r in seen.log.records)
    if contract.key.replay == "stored" and kept and any(e.effect == "replayed" and e.fault is None for e in may_act):
        return "the bank keeps a 500 under this key, and has said so"
    return None


def _kept(line: Remembered | Payment) -> bool:
    return (line.status if isinstance(line, Remembered) else line.answer_status) >= 500


def _proven_absent(seen: Observed, cell: Cell, earlier: Request, later: Request) -> bool:
    if isinstance(said(cell, earlier), NotExecuted):
        return True
    between = [r for r in seen.log.requests if earlier.at < r.at < later.at and r.account == cell.name]
    word, quiet = earlier.key or earlier.reference, earlier.at + FLIGHT
    cancel = cell.variant.contract.cancel
    if cancel is not None and any(
        r.asks == "cancel"
        and r.key == earlier.key
        and r.status == 200
        and (cancel.blocks_late_requests or r.at > quiet)
        for r in between
    ):
        return True
    asked = [
        r for r in between
        if r.asks == "lookup" and r.status == 200 and r.fault is None and (r.key or r.reference) == word
    ]  # fmt: skip
    late = cell.variant.contract.late_effects and (earlier.status or 0) >= 500
    return not late and len(asked) >= AGREE and asked[-1].at > quiet + HORIZON


def attempts_counted(seen: Observed, cell: Cell) -> None:
    """A replay is an attempt, and so is a cancel: no request that can act without one (hazard 9)."""
    for told in seen.of(cell):
        acted = sends(seen, told) + [c for c in seen.log.cancels(account=cell.name) if c.key in told.keys]
        counted = max(each["attempt"] or 0 for each in told.evidence)
        assert len(acted) <= counted, f"{told.id}: {len(acted)} requests, {counted} attempts"


def same_answer(seen: Observed, cell: Cell) -> None:
    """The answer is the same after the same proof and after a contradicting one, which opens a conflict (P3, P4,
    hazard 17); the client hears that answer, and it is about its own payment."""
    for told in seen.of(cell):
        before, after = told.answers
        assert before == after
        if told.state != "completed":
            continue
        assert told.proven == ("agrees", "conflict"), told.proven
        assert isinstance(told.heard, Replay), told.heard
        stored = (told.heard.answer.status, dict(told.heard.answer.headers), told.heard.answer.body)
        assert (before[2], dict(before[3]), bytes(before[4])) == stored
        assert told.heard.answer.status == (201 if told.outcome == "succeeded" else 402)
        assert str(told.id).encode() in told.heard.answer.body
        assert told.reference is not None and told.reference.encode() in told.heard.answer.body


def explained(seen: Observed, cell: Cell) -> None:
    """The evidence leads from the accept to the end without a gap, every end says who saw what, and every verdict had
    its reason; an accepted row never rests (hazards 57, 68)."""
    for told in seen.of(cell):
        changes = [each for each in told.evidence if each["to_state"] is not None]
        assert changes, f"{told.id}: no evidence at all"
        for earlier, later in pairwise(changes):
            assert later["from_state"] == earlier["to_state"], (earlier, later)
        assert changes[-1]["to_state"] == told.state
        for each in changes:
            assert each["source"] and each["kind"]
            if each["to_state"] == "completed":
                assert each["outcome"] in ("succeeded", "refused", "interim") or each["details"], each
            if each["from_state"] == "unknown" and each["to_state"] == "failed_retryable":
                assert (each["source"], each["outcome"]) == ("reconciler", "absent"), each
            assert (each["from_status"], each["to_status"]) != ("awaiting", "held"), each
        ours = {p.id for p in seen.log.payments() if (p.key or p.reference) in told.keys}
        named = {each["provider_reference"] for each in told.evidence} - {None}
        assert named <= ours, f"{told.id} was told about other payments: {named - ours}"


def met(seen: Observed, cell: Cell) -> None:
    """The cell is one: its first fault was met by the first send of every intent."""
    first = [sends(seen, told)[0].fault or "" for told in seen.of(cell)]
    assert [each.partition(":")[0] for each in first] == [str(cell.faults[0])] * cell.intents


def delivered(seen: Observed, cell: Cell) -> None:
    """With webhooks every payment was told, and every event that was taken is about the right intent."""
    owner = {key: told for told in seen.of(cell) for key in told.keys}
    payments = {p.id: owner[p.key or p.reference or ""] for p in seen.log.payments(account=cell.name)}
    voided = {r.payment for r in seen.log.records if isinstance(r, Voided)}
    told_of = {each.payment for each in seen.log.webhooks if each.account == cell.name and each.status == 200}
    assert told_of <= set(payments) and (set(payments) - voided <= told_of or not seen.webhooks)
    sent = {each.id: each.payment for each in seen.log.webhooks if each.account == cell.name}
    for event in seen.events:
        if event["account"] == cell.name:
            assert event["intent_id"] == payments[sent[event["event_id"]]].id, event


CHECKS: tuple[Callable[[Observed, Cell], None], ...] = (
    met, one_effect, settled, nothing_forbidden, attempts_counted, same_answer, explained, delivered,
)  # fmt: skip


def broken(seen: Observed, cells: list[Cell]) -> Iterator[str]:
    """The names of the checks that fail in a cell."""
    for cell in cells:
        for check in CHECKS:
            try:
                check(seen, cell)
            except AssertionError:
                yield check.__name__


def figures(seen: Observed) -> str:
    """One line for people."""
    log, cells = seen.log, {told.cell.name for told in seen.intents}
    ends = [f"{n} {word}" for word in ("completed", "failed_retryable", "unknown")
            if (n := sum(told.state == word for told in seen.intents))]  # fmt: skip
    return (
        f"{len(cells)} cells, {len(seen.intents)} intents ({', '.join(ends)}), {len(log.sends())} sends of which "
        f"{len(log.resends())} under a key that was sent before, {len(log.effects())} effects, "
        f"{sum(r.asks == 'lookup' for r in log.requests)} questions, {len(log.cancels())} cancels, "
        f"{len(log.webhooks)} deliveries; {seen.shifted:g} s of theirs took {seen.took:.1f} s"
    )
