"""Carries out an operator's decision under the row's lock, through the one gate, with who and why in the evidence.

Each function is one transaction on an idle connection. If the action is not possible now, it raises `OperatorRefused`,
which says why and what to do, and changes nothing. `version` is the intent's version that the operator saw; if the
version has changed, the action is refused, because the decision was about another state.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import Source, StoredProof
from idem.outbox.domain.outcomes import Refused, Seen, Succeeded, name
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.operator import dead_letters, guards, locking
from idem.outbox.operator.confirmation import Confirmed, said
from idem.outbox.operator.snapshot import Snapshot
from idem.outbox.settle import decide, given_up, proofs
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.gate import write
from idem.outbox.settle.own_answers import CANCELLED
from idem.outbox.values.errors import OperatorRefused

SOURCE: Final = "operator"


@dataclass(frozen=True, slots=True)
class Done:
    """The result: the intent's new state and the row's new status (None: the row is removed)."""

    intent_id: UUID
    action: str
    state: KeyState
    status: OutboxStatus | None


async def cancel(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    intent: UUID,
    *,
    by: str,
    reason: str,
    version: int | None = None,
    source: Source = SOURCE,
    know_it_did_not_happen: bool = False,
) -> Done:
    """Complete an intent that was never executed with the answer `cancelled`.

    `source`: who the evidence names, an operator or the `client`.
    """
    async with locking.lock_intent(connection, intent, version, by, reason) as found:
        refuse(guards.against_cancel(found, sure=know_it_did_not_happen, client=source == "client"))
        terms = catalogue.cautious_of(found.row)
        evidence = dataclasses.replace(evidence_of("cancelled", by, reason, found), source=source)
        return await write_decision(connection, given_up.cancelled(found.row, evidence, terms, CANCELLED), found)


# What is known of the refusal that an operator decides about.
REFUSAL = """
SELECT (d.details -> 'refused') - 'attempt' AS refused FROM idem.dead_letters d
 WHERE d.intent_id = %(intent)s AND d.reason = 'partial' AND d.resolved_at IS NULL
"""


async def undo(
    connection: AsyncConnection[Any], catalogue: Catalogue, intent: UUID, *, by: str, reason: str, version: int
) -> Done:
    """Undo what a flow has done, by the compensations of its done steps; its open step is not made any more."""
    async with locking.lock_intent(connection, intent, version, by, reason) as found:
        refuse(guards.against_undo(found))
        row = await (await connection.execute(REFUSAL, {"intent": intent})).fetchone()
        refused = Refused(**row[0]) if row is not None and row[0] is not None else None
        terms = catalogue.cautious_of(found.row)
        evidence = evidence_of("undone", by, reason, found)
        return await write_decision(connection, given_up.undone(found.row, evidence, terms, refused), found)


async def redrive(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    intent: UUID,
    *,
    by: str,
    reason: str,
    version: int,
    know_it_did_not_happen: bool = False,
    new_provider_key: bool = False,
    due_in: float = 0.0,
) -> Done:
    """Queue an intent again under the same provider key, `due_in` seconds from now.

    A row at rest is proven not executed, so idem may send it at once, as at its client's retry. An unknown row is first
    resolved as failed_retryable; idem may send it only while the provider recognises a second call by its key. In all
    other cases the time in which the call may start begins again. `new_provider_key` is for a key that the provider has
    burned; it is refused while a request that was sent may still act, and if nothing proves that it did not act.
    `know_it_did_not_happen` overrides the guards that nothing else can; the evidence names each guard that was
    overridden.
    """
    async with locking.lock_intent(connection, intent, version, by, reason) as found:
        terms = catalogue.sendable(found.row)
        why_not = guards.against_redrive(found, terms, sure=know_it_did_not_happen, new_key=new_provider_key)
        refuse(why_not)
        overridden = [text for _, text in guards.risks_of_redrive(found, terms, new_key=new_provider_key)]
        patience, certain = terms.operation.patience + due_in, bool(overridden)
        recognised = (
            found.operator_said_not_sent
            or found.row.doubted_for is not None
            or found.row.status is OutboxStatus.UNKNOWN
        )
        if not overridden and recognised:
            # idem sends it again because the provider knows the key, so not later than the provider does.
            patience = min(patience, found.window_left(terms))
        if found.row.status is OutboxStatus.UNKNOWN:
            change = _did_not_happen(found, terms, by, reason, overridden)
            if not overridden:
                # Nothing is proven, so the provider's memory still counts from the first send, for every replay too.
                change = dataclasses.replace(change, doubt="begins")
            # It rests only within this transaction, so idem emits no event.
            await write_decision(connection, dataclasses.replace(change, event=None), found)
            found = await locking.locked(connection, found.row.id, intent)
            overridden = []
        evidence, row = evidence_of("redriven", by, reason, found, overridden=overridden), found.row
        if new_provider_key:
            # The renderer makes it, as for each burned key: it alone knows whether the step is wanted.
            row = dataclasses.replace(row, key_burned=True)
        change = decide.redriven(row, evidence, terms, patience=patience)
        # An operator's statement proves nothing either: the next replay's memory also counts from the first send.
        doubt: Literal["begins", "ends"] | None = "ends" if certain else "begins" if recognised else None
        # That lost commits did not send it is an operator's statement too.
        word: Literal["begins"] | None = "begins" if certain and row.doubted_for is not None else None
        change = dataclasses.replace(
            change, failures=0, due_in=due_in, doubt=doubt, word=word, key_burned=row.key_burned
        )
        return await write_decision(connection, change, found)


async def resolve_failed(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    intent: UUID,
    *,
    by: str,
    reason: str,
    version: int,
    know_it_did_not_happen: bool = False,
    letter: UUID | None = None,
) -> Done:
    """Record that an unknown intent did not happen: it rests, and idem never redrives it by itself. Resolves `letter`
    too.
    """
    async with locking.lock_intent(connection, intent, version, by, reason) as found:
        await dead_letters.check_open(connection, letter, intent)
        terms = catalogue.cautious_of(found.row)
        refuse(guards.against_failed(found, terms, sure=know_it_did_not_happen))
        overridden = [text for _, text in guards.overridable(found, terms)]
        done = await write_decision(connection, _did_not_happen(found, terms, by, reason, overridden), found)
        await dead_letters.resolve(connection, letter, done.action, by, reason)
        return done


async def resolve_completed(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    renderer: Renderer,
    intent: UUID,
    outcome: Succeeded | Refused,
    *,
    by: str,
    reason: str,
    version: int,
    answer: Answer | None = None,
    letter: UUID | None = None,
    confirmed: Confirmed | None = None,
) -> Done:
    """Record the outcome at the provider as a proof by the operator, applied like any other. Resolves `letter` too.

    `confirmed`: the provider's own answer (`operator.confirmation`); the evidence records it, or that it is missing.
    Without an `answer` the operation renders it from the outcome; if it cannot, the operator must give one. The answer
    of a completed intent never changes.
    """
    if isinstance(outcome, Succeeded) and not outcome.reference:
        raise OperatorRefused("give the provider's reference: without one, the effect can never be checked")
    if answer is None:
        # Before the lock, because it is the operation's own code and may be slow.
        answer = await _rendered(connection, catalogue, renderer, intent, outcome)
    async with locking.lock_intent(connection, intent, version, by, reason) as found:
        await dead_letters.check_open(connection, letter, intent)
        refuse(guards.against_completed(found, outcome))
        terms = catalogue.cautious_of(found.row)
        evidence = evidence_of("resolved_completed", by, reason, found)
        details = {**evidence.details, "provider_said": said(confirmed)}
        evidence = dataclasses.replace(
            evidence, outcome=name(outcome), reference=outcome.reference, details=details,
            seen=Seen() if confirmed is None else confirmed.seen,
        )  # fmt: skip
        proof = StoredProof(uuid4(), SOURCE, outcome, answer, attempt=found.row.attempt)
        applied = await proofs.apply(connection, found.row.id, proof, evidence, terms)
        state = await locking.state(connection, intent)
        if applied != "applied" or (state is not KeyState.COMPLETED and found.row.plan is None):
            raise OperatorRefused(
                "contradicting evidence arrived while you were deciding. Nothing was changed; run the command again"
            )
        await dead_letters.resolve(connection, letter, evidence.kind, by, reason)
        return Done(intent, evidence.kind, state, None)


async def _rendered(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    renderer: Renderer,
    intent: UUID,
    outcome: Succeeded | Refused,
) -> Answer | None:
    held = await locking.snapshot(connection, intent)
    if held is None:
        raise OperatorRefused(f"intent {intent}: {locking.why_ended(await locking.state(connection, intent))}")
    operation = catalogue.require(held.row.operation, held.row.step_name).operation
    rendered = await renderer.render(operation, outcome, intent, held.row)
    if rendered.letter is not None:
        raise OperatorRefused(
            f"the operation could not render its answer ({rendered.letter.details['error']}): give the answer "
            "yourself with --answer FILE"
        )
    return rendered.answer


def _did_not_happen(found: Snapshot, terms: Terms, by: str, reason: str, overridden: list[str]) -> Change:
    evidence = evidence_of("resolved_failed", by, reason, found, overridden=overridden)
    change = dataclasses.replace(decide.verdict(found.row, evidence, terms, redrive=False), word="begins")
    if found.row.token is not None:
        # A reconciler claim that expired may have been a replay: its end raises the quiet time, as the next claim
        # would.
        quiet = terms.contract.flight_limit + terms.contract.pause_allowance
        change = dataclasses.replace(change, quiet_for=quiet, quiet_from="lease")
    return change


def evidence_of(kind: str, by: str, reason: str, found: Snapshot, *, overridden: list[str] | None = None) -> Evidence:
    """The evidence of an operator's decision."""
    details: dict[str, Any] = {"by": by, "reason": reason, "version": found.row.version}
    if found.hints:
        details["unconfirmed_events"] = [str(hint) for hint in found.hints]
    return Evidence(SOURCE, kind, details=details | ({"overridden": overridden} if overridden else {}))


async def write_decision(connection: AsyncConnection[Any], change: Change, found: Snapshot) -> Done:
    """Write the change that an operator decided about this snapshot. Raises OperatorRefused."""
    # The guards let a hint pass only if the operator is sure; idem still asks the provider about its event. Storing a
    # proof needs no lock on the row, so one may have arrived since the guards ran.
    if not await write(connection, [dataclasses.replace(change, folds=found.hints)]):
        raise OperatorRefused(
            "new evidence arrived while you were deciding, or another session locks the row. "
            "Nothing was changed; run the command again"
        )
    return Done(found.row.intent_id, change.evidence.kind, change.state, change.status)


def refuse(why: str | None) -> None:
    """Raises OperatorRefused where a guard says why not."""
    if why is not None:
        raise OperatorRefused(why)
