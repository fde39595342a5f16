"""The worlds that are explored, each whole: `QUICK` by `make test`, `LARGE` by `make prove`."""

from __future__ import annotations

from model.state import FIRST, SECOND, UNDO, Flow, World

CALL = Flow(steps=1)
ANY = frozenset({FIRST, SECOND, UNDO})

FLOWS = (
    World("flow, compensated"),
    World("flow, compensated, nothing replayed", remembers=False),
    World("flow, an operator decides", flows=(Flow(on_refusal="operator"),)),
    World("flow, the refusal is its end", flows=(Flow(on_refusal="stop", undo=False),), remembers=False),
    World("flow, all may be refused or skipped", flows=(Flow(optional=True),), refuses=ANY, redrives=True),
    World("flow, its key complete after step 1", flows=(Flow(on_refusal="operator", completes=1),), remembers=False),
)
ORDERS = (
    World("order, two calls", flows=(CALL, CALL), ordered=True, sends=1, workers=1),
    World("order, who ends waits", flows=(CALL, CALL), ordered=True, patient=True, sends=1, workers=1, expires=False),
    World("order, a flow first", flows=(Flow(), CALL), ordered=True, operator=False, cancels=False, expires=False),
    World(
        "order, a refused head holds",
        flows=(CALL, CALL),
        ordered=True,
        hold=True,
        refuses=ANY,
        remembers=False,
        sends=1,
        workers=1,
    ),
)
APPROVALS = (
    World("approval of a flow", flows=(Flow(approve=True),)),
    World("approval of a call, nothing replayed", flows=(Flow(steps=1, approve=True),), remembers=False),
    World("approval of a follower", flows=(CALL, Flow(steps=1, approve=True)), ordered=True, sends=1, workers=1),
)
QUICK = FLOWS + ORDERS + APPROVALS

LARGE = (
    # What `canonical` merges it merges rightly: without that the same rules hold, in many times as many states.
    World("flow, compensated, nothing merged", merges=False, cancels=False),
    World("flow, three sends", flows=(Flow(optional=True),), refuses=ANY, sends=3),
    World(
        "flow, three sends, nothing replayed",
        flows=(Flow(on_refusal="operator"),),
        refuses=ANY,
        sends=3,
        remembers=False,
    ),
    World("flow, three workers", flows=(Flow(on_refusal="operator"),), refuses=ANY, workers=3, redrives=True),
    World("order, a flow and a call", flows=(Flow(), CALL), ordered=True, sends=1),
    World("order, two flows", flows=(Flow(), Flow(on_refusal="stop")), ordered=True, sends=1, workers=1, cancels=False),
    World(
        "order, a refused flow holds",
        flows=(Flow(on_refusal="stop"), CALL),
        ordered=True,
        hold=True,
        refuses=ANY,
        remembers=False,
        sends=1,
    ),
    World(
        "approval of a flow in an order",
        flows=(Flow(approve=True), Flow(approve=True, steps=1)),
        ordered=True,
        sends=1,
        workers=1,
    ),
    World(
        "order, three calls",
        flows=(CALL, CALL, Flow(steps=1, approve=True)),
        ordered=True,
        sends=1,
        workers=1,
        operator=False,
        cancels=False,
    ),
)
