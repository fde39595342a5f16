"""The end of a step that is not wanted, of a call or a local one. Pure."""

import dataclasses

from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.states import KeyState
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.settle import steps
from idem.outbox.settle.answer_rendering import Rendered
from idem.outbox.settle.decide import unchanged


def skipped(row: OutboxRow, rendered: Rendered, terms: Terms) -> Change:
    """A worker has found that the open step is not wanted. `rendered`: the client's answer, if that ends the flow."""
    change = dataclasses.replace(unchanged(row, Evidence("worker", "skipped"), terms), state=KeyState.IN_PROGRESS)
    change = steps.skipped(change, row, rendered.answer, terms)
    return dataclasses.replace(change, letters=() if rendered.letter is None else (rendered.letter,))
