"""The turn of a local step: its function writes the user's rows, and idem the end of the step, in one transaction.

So its effect is there once: whatever fails before the commit leaves nothing of either, and the step is run again.
"""

import dataclasses
import json
from typing import Any

from sqlalchemy import Connection

from idem.outbox.database import session
from idem.outbox.domain import approval
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.outbox_row import UNAPPROVED, OutboxRow
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change
from idem.outbox.handlers.turn import Turn, TurnEnd
from idem.outbox.observe.after_commit import Moved
from idem.outbox.settle import gate, local_steps, order, steps
from idem.outbox.settle.answer_rendering import local_answer, skipped_answer
from idem.outbox.settle.skipping import skipped
from idem.outbox.values import storable
from idem.outbox.values.errors import IdemError, ParamsInvalid, Unrenderable
from idem.outbox.worker import local_rows
from idem.outbox.worker.local_rows import DueStep
from idem.outbox.worker.rendering import check_params


class RowIsHeld(IdemError):
    """The end of a local step cannot be written now: what its function has written is undone, and it is run again."""


class LocalTurn(Turn):
    """One run of a local step. `row` is what it is about, once it is locked; `moved` is told after the commit."""

    whose = "local step"

    def __init__(self, due: DueStep, terms: Terms, environment: str, limit: float) -> None:
        step = terms.operation.step
        assert step is not None and step.run is not None
        super().__init__(step.run, limit)
        self._due = due
        self.terms = terms
        self.row: OutboxRow | None = None
        self.moved: list[Moved] = []
        self.final = False
        """Another attempt would find the same."""
        self.asks = False
        """The function has not run: a person must approve the flow first."""
        self._environment = environment
        self._ruling: approval.Ruling | None = None

    @property
    def _operation(self) -> OperationSpec:
        return self.terms.operation

    def begin(self, connection: Connection) -> tuple[Any, ...] | TurnEnd:
        self.prepare(connection)
        locked = local_rows.lock(connection, self._due.id, self._due.taken, self._environment)
        if locked is None:
            return "not_now"
        found, self.backend, self.transaction = locked
        self.row, params = found.row, json.loads(found.written)
        if found.row.step == 1:
            self._first(connection, found.row, params)
        if self._asks(connection, found.row, params):
            return "succeeded"
        assert self._operation.step is not None
        if steps.is_wanted(found.row, self._operation.step, params):
            return params, steps.by_name(found.row.ends)
        self._write(connection, skipped(found.row, skipped_answer(self._operation, found.row), self.terms))
        return "succeeded"

    def end(self, connection: Connection, returned: Any) -> None:
        assert self.row is not None
        if not local_rows.is_same(connection, self.transaction):
            raise self.own_transaction()
        said = local_steps.outcome(returned)
        rendered = local_answer(self._operation, self.row, said)
        self._write(connection, local_steps.ended(self.row, said, rendered, self.terms))

    def _first(self, connection: Connection, row: OutboxRow, params: Any) -> None:
        # SQL alone may have accepted it: then nobody has looked at its params, or given it a label.
        try:
            check_params(self._operation, params)
        except ParamsInvalid:
            self.final = True
            raise
        label = self._operation.label(params)
        if label is not None:
            local_rows.label(connection, row, storable.text(label))

    def _asks(self, connection: Connection, row: OutboxRow, params: Any) -> bool:
        # SQL alone may have accepted it: then nobody has decided whether a person must approve it.
        if row.approval != approval.UNDECIDED:
            return False
        try:
            self._ruling = approval.ruling(self._operation, params)
        except Unrenderable:
            self.final = True
            raise
        self.asks = self._ruling in UNAPPROVED
        if self.asks:
            self._write(connection, local_steps.asking(row, self._ruling, self.terms))
        return self.asks

    def _write(self, connection: Connection, change: Change) -> None:
        # What follows this step is as approved as it is.
        change = dataclasses.replace(change, ruling=self._ruling)
        # The function is over, and had the plans of its own session: what follows has those of a daemon.
        connection.exec_driver_sql(session.SETTINGS, session.parameters(session.PLANS, local=True))
        written = connection.exec_driver_sql(gate.WRITE, gate.given([change])).all()
        if change.row_id not in {each.id for each in written if each.kind != order.PROMOTION}:
            raise RowIsHeld(f"another session holds what the end of step {change.row_id} writes")
        self.moved = [order.moved(each) for each in written]
