"""The explicit model of flows, orders and approvals: no rule is broken in any world, and each planted fault is seen."""

from dataclasses import replace

import pytest
from model.explorer import explore
from model.invariants import LIVENESS, OF_EFFECTS, OF_RECORDS
from model.mutants import Mutant
from model.state import World
from model.worlds import LARGE, QUICK

NAMED = {world.name: world for world in QUICK}
CAUGHT = {
    Mutant.NO_RECOVERY_POINT: ("flow, compensated", "the_recovery_point_is_the_last_end"),
    Mutant.STEP_KEY_WITHOUT_STEP: ("flow, compensated", "an_end_is_true"),
    Mutant.PROOF_NAMES_NO_STEP: ("flow, compensated", "a_proof_changes_its_own_step_alone"),
    Mutant.COMPENSATION_BEFORE_VERDICT: ("flow, compensated", "a_compensation_follows_a_verdict"),
    Mutant.COMPENSATION_SENT_TWICE: ("flow, compensated, nothing replayed", "a_compensation_happens_once"),
    Mutant.CLAIMED_UNDER_UNKNOWN_HEAD: ("order, two calls", "an_order_runs_one_at_a_time"),
    Mutant.PROMOTED_BY_NOBODY: ("order, a flow first", LIVENESS),
    Mutant.UNAPPROVED_PROMOTED: ("approval of a follower", "what_nobody_approved_is_not_sent"),
    Mutant.REJECTED_SENT: ("approval of a flow", "a_rejected_intent_has_no_effect"),
    Mutant.EXPIRED_WHILE_OPEN: ("flow, its key complete after step 1", "a_key_outlives_its_flow"),
    Mutant.OLD_REFUSAL_APPLIED: ("flow, an operator decides", "a_compensation_follows_a_verdict"),
    Mutant.ACCEPT_WITHOUT_LOCK: ("order, two calls", "an_order_runs_one_at_a_time"),
    Mutant.ORDER_OF_ROWS: ("order, a flow first", "an_order_runs_one_at_a_time"),
    Mutant.RETRY_JUMPS_THE_ORDER: ("order, two calls", "an_order_runs_one_at_a_time"),
    Mutant.RETRY_APPROVES: ("approval of a flow", "what_nobody_approved_is_not_sent"),
    Mutant.SWEEPER_ENDS_HOLD: ("order, a refused head holds", "an_order_runs_one_at_a_time"),
    Mutant.CANCELLED_AND_NOT_UNDONE: ("flow, compensated", "an_answer_is_true"),
    Mutant.SKIPPED_HEAD_HOLDS: ("order, a refused head holds", "an_order_runs_one_at_a_time"),
    Mutant.ABSENT_AT_ONCE: ("flow, compensated", "an_end_is_true"),
    Mutant.REPORT_WITHOUT_TOKEN: ("flow, compensated", "nothing_happens_behind_an_end"),
    Mutant.GOES_ON_BEHIND_EXPIRY: ("flow, compensated", "no_step_begins_behind_an_expired_key"),
    Mutant.SILENT_REST: ("flow, the refusal is its end", LIVENESS),
}
"""Each planted fault, the world in which it is planted, and the rule that it breaks."""
HAPPENS = {
    "client accepts", "client retries", "client cancels", "operator cancels", "database commits the accept",
    "database rolls the accept back", "worker renders", "worker skips", "worker claims", "worker sends", "worker dies",
    "worker reports succeeded", "worker reports refused", "worker reports ambiguous", "worker reports not executed",
    "provider acts", "provider refuses", "webhook says succeeded", "webhook says refused", "sweeper promotes",
    "sweeper ends the lease", "sweeper finds too old", "sweeper redrives", "sweeper deletes the row",
    "sweeper expires the key", "reconciler finds succeeded", "reconciler finds refused", "reconciler finds nothing",
    "reconciler writes its verdict", "reconciler begins a replay", "reconciler sends again",
    "reconciler reports succeeded", "reconciler reports refused", "reconciler reports ambiguous", "reconciler dies",
    "reconciler applies the stored proof", "clock ends the quiet time", "clock ends the take", "operator approves",
    "operator rejects", "operator redrives", "operator lets it compensate", "operator resolves it as it is",
    "operator says that it happened", "operator says that it did not", "operator lets its followers pass",
    "operator skips the refused head",
}  # fmt: skip
"""All that the model knows: what happens in no world would be a rule that nothing has tried."""


def held(world: World) -> set[str]:
    """Explore a world that must hold; what happened in it."""
    found = explore(world)
    print(found)  # noqa: T201 - figures, shown by -s
    assert not found.broken, str(found)
    return found.happened


def test_no_rule_is_broken_in_any_world():
    happened = set().union(*(held(world) for world in QUICK))
    assert happened == HAPPENS


@pytest.mark.campaign
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("world", LARGE, ids=[world.name.replace(" ", "-").replace(",", "") for world in LARGE])
def test_no_rule_is_broken_in_a_large_world(world):
    held(world)


@pytest.mark.parametrize("mutant", Mutant, ids=[mutant.name.lower() for mutant in Mutant])
def test_a_planted_fault_breaks_the_rule_that_is_against_it(mutant):
    name, rule = CAUGHT[mutant]
    found = explore(replace(NAMED[name], mutants=frozenset({mutant})), until=rule)
    assert rule in found.broken, f"{mutant.value}: not seen by {rule} in {found}"
    assert len(found.broken[rule]) > 1, "a way to it is told"


def test_each_rule_has_a_fault_that_breaks_it_or_says_why_not():
    always = {
        # Also broken by faults above, always together with or after the rule that is named there.
        "an_effect_happens_once",
        # What the state itself cannot be without: the model would have to be wrong.
        "an_end_stays", "an_answer_stays", "an_open_intent_has_one_row", "steps_begin_in_order",
        "a_step_that_is_done_begins_no_call",
    }  # fmt: skip
    assert {rule for _, rule in CAUGHT.values()} | always == {rule.__name__ for rule in OF_EFFECTS + OF_RECORDS} | {
        LIVENESS
    }
