"""Renders the answer for the client: user code that runs before the row settles, so under a time limit.

If the stored answer fails the row settles with the fallback and a dead letter: the effect comes first. If an interim
answer fails the default takes its place: nothing immutable was written, so a line in the log is enough.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from idem.outbox.calls.user_code import Turns
from idem.outbox.domain.approval import REJECTED
from idem.outbox.domain.completion import default_interim, meaning
from idem.outbox.domain.operation import Answer, FinalOutcome, OperationSpec, check_answer, versioned
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.outcomes import Outcome, Pending, Proof, Refused, Seen, Succeeded
from idem.outbox.domain.states import Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import DeadLetter
from idem.outbox.observe import telemetry
from idem.outbox.settle import steps
from idem.outbox.settle.report import Report
from idem.outbox.settle.steps import Conclusion
from idem.outbox.values import storable

TIME_LIMIT = 2.0
"""Seconds that an operation's `answer` or `interim` may take, from when it begins."""
SLOT_LIMIT = 10.0
"""Seconds that it may wait for its slot: far below what a lease leaves after a call."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What follows from a proof for the client: the `answer` where it completes the key, with the dead letter to open
    if that is the fallback; else `interim`, JSON."""

    answer: Answer | None = None
    letter: DeadLetter | None = None
    interim: Any = None


class Renderer:
    """Runs `answer` and `interim` of operations: templates of idem.toml at once, code of the user's in threads, and
    never in the event loop's default executor.

    Each operation has its own slots, so that code which hangs gives no other operation a fallback for ever; and the
    threads are daemons, so that it does not keep the process from ending.
    """

    def __init__(self, slots: int = 4) -> None:
        self._turns = Turns(limit=TIME_LIMIT, patience=SLOT_LIMIT, slots=slots)

    async def render(
        self, operation: OperationSpec, seen: Proof, intent_id: UUID, row: OutboxRow | None = None
    ) -> Rendered:
        """What this proof means for the client: answer or interim answer, or the fallback of it. Never raises.

        `row`: the row that it is about, where its operation is a flow: a step has an answer only if it ends the flow,
        or completes the key.
        """
        match meaning(operation, seen):
            case Pending() as working:
                return Rendered(interim=await self._interim(operation, working))
            case Succeeded() | Refused() as end if operation.step is None:
                return await self._answer(operation, end, intent_id)
            case _:
                what = None if row is None or row.plan is None else steps.answered_by(row, operation, seen)
                if what is None or isinstance(what, Answer):
                    return Rendered(what)
                return await self._answer(operation, what, intent_id)

    async def rejected(self, operation: OperationSpec, intent_id: UUID) -> Answer:
        """What the client gets whose request a person has rejected. Raises what the operation's own code raises."""
        make = operation.rejected
        if make is None:
            return versioned(REJECTED, operation.answer_version)
        answer = await self._turns.run(operation.name, lambda: make(str(intent_id)))
        check_answer(answer)
        return versioned(answer, operation.answer_version)

    async def report(self, row: OutboxRow, outcome: Outcome, seen: Seen, terms: Terms) -> Report:
        """What the holder of a claim reports of its call, with the answer or interim answer of a proof."""
        rendered = Rendered()
        if isinstance(outcome, Succeeded | Refused | Pending):
            rendered = await self.render(terms.operation, outcome, row.intent_id, row)
        return Report(row, outcome, seen, terms, rendered.answer, rendered.letter, rendered.interim)

    async def _answer(self, operation: OperationSpec, outcome: Succeeded | Refused, intent_id: UUID) -> Rendered:
        try:
            if operation.templated:
                return _checked(operation, operation.answer(outcome, str(intent_id)))
            answer = await self._turns.run(operation.name, lambda: operation.answer(outcome, str(intent_id)))
            return _checked(operation, answer)
        except Exception as error:  # user code may raise anything; the row must settle all the same
            return _failed(operation, outcome, intent_id, error)

    async def _interim(self, operation: OperationSpec, working: Pending) -> Any:
        interim = operation.interim
        if interim is None:
            return default_interim(working)
        try:
            shown = await self._turns.run(operation.name, lambda: interim(working))
            return default_interim(working) if shown is None else _check_interim(shown)
        except Exception as error:  # user code may raise anything; the row must settle all the same
            telemetry.broken("renderer", error, f"the interim answer of {operation.name}; the client gets the default")
            return default_interim(working)


def skipped_answer(operation: OperationSpec, row: OutboxRow) -> Rendered:
    """What it means for the client that the open step of a flow is skipped. Runs the operation's own code, so in a
    thread and under the limit of its caller; never raises."""
    return _step_answer(operation, row, steps.answered_by_skip(row))


def local_answer(operation: OperationSpec, row: OutboxRow, outcome: Succeeded | Refused) -> Rendered:
    """The same of the end of a local step: rendered in the thread of its function, and in its time."""
    return _step_answer(operation, row, steps.answered_by(row, operation, outcome))


def _step_answer(operation: OperationSpec, row: OutboxRow, what: Conclusion | None) -> Rendered:
    if what is None or isinstance(what, Answer):
        return Rendered(what)
    try:
        return _checked(operation, operation.answer(what, str(row.intent_id)))
    except Exception as error:  # user code may raise anything; the row must settle all the same
        return _failed(operation, what, row.intent_id, error)


def _checked(operation: OperationSpec, answer: Answer) -> Rendered:
    check_answer(answer)
    return Rendered(versioned(answer, operation.answer_version))


def _failed(operation: OperationSpec, outcome: FinalOutcome, intent_id: UUID, error: Exception) -> Rendered:
    note = f"{type(error).__name__}: {error}"[:500]
    letter = DeadLetter(Reason.ANSWER_FAILED, {"operation": operation.name, "error": note})
    return Rendered(versioned(fallback(outcome, intent_id), operation.answer_version), letter)


def fallback(outcome: Succeeded | Refused, intent_id: UUID) -> Answer:
    """What a client gets when the operation cannot say it: 201 or 402 with intent, state and reference."""
    body = {"intent": str(intent_id), "state": "completed", "provider_reference": outcome.reference}
    return Answer(201 if outcome.succeeded else 402, json.dumps(body).encode())


def _check_interim(shown: Any) -> Any:
    # Cut to size, a web address or a client's secret would be a wrong one.
    notes: list[str] = []
    kept = storable.fields({"interim": shown}, notes)["interim"]
    if notes:
        raise ValueError(f"interim() returned a value that cannot be stored unchanged: {'; '.join(notes)}")
    return kept
