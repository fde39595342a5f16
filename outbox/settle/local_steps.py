"""What follows from the turn of a local step: its end, or that it failed. Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from idem.outbox.domain import approval
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.outcomes import Refused, Seen, Succeeded, name
from idem.outbox.domain.states import KeyState, Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.settle import steps
from idem.outbox.settle.answer_rendering import Rendered
from idem.outbox.settle.decide import unchanged
from idem.outbox.settle.endings import at_rest
from idem.outbox.values import storable
from idem.outbox.values.backoff import not_before

CAP: Final = 600.0
"""Seconds between two attempts at the most. 1, 4, 16, 64, 256, 600 and 600, as those of a handler."""


def outcome(returned: Any) -> Succeeded | Refused:
    """What a local step came to, by what its function returned. Raises TypeError, and ValueError for fields that cannot
    be kept as they are: later steps and the answer are made of them."""
    if isinstance(returned, Refused):
        said: Succeeded | Refused = returned
    elif returned is None:
        said = Succeeded(None)
    elif isinstance(returned, Mapping):
        said = Succeeded(None, fields=dict(returned))
    else:
        raise TypeError(f"a local step returns a mapping, None or a Refused, not {type(returned).__name__}")
    notes: list[str] = []
    storable.fields(said.fields, notes)
    if notes:
        raise ValueError(f"a local step returned fields that cannot be stored as JSON unchanged: {'; '.join(notes)}")
    return said


def ended(row: OutboxRow, said: Succeeded | Refused, rendered: Rendered, terms: Terms) -> Change:
    """The function has written its rows, or refuses."""
    evidence = Evidence("worker", "run", name(said), reference=said.reference)
    change = steps.ended(_change(row, evidence, terms), row, said, rendered.answer, terms)
    letters = change.letters if rendered.letter is None else (*change.letters, rendered.letter)
    return dataclasses.replace(change, letters=letters)


def asking(row: OutboxRow, ruling: approval.Ruling, terms: Terms) -> Change:
    """A person must approve the flow before its function runs."""
    change = steps.asking(_change(row, Evidence("worker", "asked"), terms), row, ruling)
    return dataclasses.replace(change, sweeps=0)


def failed(row: OutboxRow, error: str, message: str, terms: Terms, *, attempts: int, final: bool) -> Change:
    """The function has raised, and nothing of it is left: due again later, or after so many attempts at rest.

    `final`: another attempt would do harm. Who takes it up again gives it all its attempts anew.
    """
    count = row.failures + 1
    evidence = Evidence("worker", "failed", seen=Seen(error=error, note=message), details={"failures": count})
    change = dataclasses.replace(_change(row, evidence, terms), alone=True)
    if not final and count < attempts:
        wait = not_before(min(CAP, 4.0**row.failures))
        return dataclasses.replace(change, due_in=wait, failures=count, sweeps=0, error_code="local_step_failed")
    details = {"operation": row.operation, "attempts": count, "error": error, "note": message}
    rests = at_rest(change, row, terms, DeadLetter(Reason.UNRENDERABLE, details))
    return dataclasses.replace(rests, failures=0, sweeps=0)


def crashed(row: OutboxRow, terms: Terms) -> Change:
    """Processes died while they ran the function, and nothing of it is left: at rest until an operator has looked."""
    change = _change(row, Evidence("worker", "crashed", details={"taken": row.sweeps - 1}), terms)
    letter = DeadLetter(Reason.CRASHES_WORKER, {"operation": row.operation, "sweeps": row.sweeps - 1})
    return dataclasses.replace(at_rest(change, row, terms, letter), failures=0, sweeps=0, alone=True)


def _change(row: OutboxRow, evidence: Evidence, terms: Terms) -> Change:
    return dataclasses.replace(unchanged(row, evidence, terms), state=KeyState.IN_PROGRESS)
