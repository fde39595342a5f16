"""What becomes of a row that waits to be rendered: its bytes, or that it is not wanted.

The operation's own code runs here, in a thread of its caller's (`idem.outbox.worker.freezing`)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from idem.outbox.domain import approval
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.outbox_row import UNAPPROVED
from idem.outbox.domain.provider import Provider
from idem.outbox.settle import steps
from idem.outbox.settle.answer_rendering import Rendered, skipped_answer
from idem.outbox.values import card_data, storable
from idem.outbox.values.errors import ParamsInvalid
from idem.outbox.worker.unfrozen import Unfrozen


@dataclass(frozen=True, slots=True)
class Frozen:
    """The bytes that will be sent, and the label for people; `ruling`: whether a call that was undecided needs an
    approval (None: that is decided)."""

    request: FrozenRequest
    label: str | None = None
    ruling: approval.Ruling | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The step is not wanted; `rendered`: the client's answer, where the flow ends with that. `ruling`: as above."""

    rendered: Rendered
    ruling: approval.Ruling | None = None


@dataclass(frozen=True, slots=True)
class Unapproved:
    """The step is not wanted either, but what follows it needs an approval: it is skipped when that is given."""

    ruling: approval.Ruling | None


Made: TypeAlias = Frozen | Skipped | Unapproved | Exception
"""What became of one row: its bytes, that it is not wanted, that it asks, or why there are none."""


def render(one: Unfrozen, provider: Provider, checked: Callable[[], None]) -> Frozen | Skipped | Unapproved:
    """Check the params of a row and build its request. `checked`: called when the check is over. Raises anything."""
    operation, params = one.terms.operation, json.loads(one.written)
    # The params were checked for the first step: what its operation takes now changes no flow that runs.
    first = one.row.step == 1
    if first:
        check_params(operation, params)
    checked()
    # Before `when`. What raises here leaves the row at rest: nothing is released without a ruling.
    ruling = approval.ruling(operation, params) if one.row.approval == approval.UNDECIDED else None
    made, label = _rendered(one, provider, params), operation.label(params) if first else None
    if isinstance(made, Skipped):
        return Unapproved(ruling) if ruling in UNAPPROVED else replace(made, ruling=ruling)
    return replace(made, label=None if label is None else storable.text(label), ruling=ruling)


def check_params(operation: OperationSpec, params: Any) -> None:
    """What accept checks, of params that SQL alone has accepted. Raises ParamsInvalid, and what `validate` raises."""
    operation.validate(params)
    if operation.card_data == "refuse" and (found := card_data.find(params)):
        raise ParamsInvalid([(place, f"this is {what}, which must not be stored") for place, what in found])


def _rendered(one: Unfrozen, provider: Provider, params: Any) -> Frozen | Skipped:
    operation = one.terms.operation
    if operation.step is not None and not steps.is_wanted(one.row, operation.step, params):
        return Skipped(skipped_answer(operation, one.row))
    request = provider.freeze(operation.request_of(params, steps.by_name(one.row.ends)), one.provider_key)
    if not (isinstance(request, FrozenRequest) and isinstance(request.body, bytes)):
        raise TypeError(f"the request was frozen as {type(request).__name__}")
    return Frozen(request)
